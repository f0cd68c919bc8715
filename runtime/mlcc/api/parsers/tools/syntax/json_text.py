"""JSON in text that is not complete yet, and calls written as JSON."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from mlcc.api.parsers.tools.base import Call

_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("?)|[{}\[\]]', re.DOTALL)
"""A string, with its closing quote if there is one, or a bracket; in linear time."""
MAX_DEPTH = 128
"""Most nested arrays and objects, as in a request's body."""
NAMES = ("name", "function", "tool_name", "tool")
ARGUMENTS = ("arguments", "parameters", "args", "input")


def json_end(text: str, start: int = 0) -> int | None:
    """End of the object or array that begins at `start`; None = it is incomplete. Does not
    validate."""
    depth = 0
    for found in _MARK.finditer(text, start):
        mark = found[0]
        if mark[0] == '"':
            if not found[1]:  # a string that is not complete
                return None
        elif mark in "{[":
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                return found.end()
    return None


def parsed(text: str) -> Any:
    """The value, or None for invalid or too deeply nested JSON."""
    if _too_deep(text):
        return None
    try:
        return json.loads(text, strict=False)  # models write line ends into strings
    except (ValueError, RecursionError):
        return None


def written(value: Any) -> str:
    """Arguments as JSON text. Values that neither JSON nor UTF-8 has are replaced: NaN by null,
    half of a surrogate pair by U+FFFD."""
    try:
        return sound(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except ValueError:
        return sound(json.dumps(_finite(value), ensure_ascii=False))


def sound(text: str) -> str:
    """The text without lone surrogates, which JSON's escapes can produce."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return {k: _finite(v) for k, v in value.items()} if isinstance(value, dict) else value


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for found in _MARK.finditer(text):
        depth += (found[0] in "{[") - (found[0] in "}]")
        if depth > MAX_DEPTH:
            return True
    return False


def call_of(value: Any) -> Call | None:
    """The call in an object that names a tool and its arguments by one of the usual keys."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = next((value[key] for key in NAMES if isinstance(value.get(key), str)), "")
    given: Any = next((value[key] for key in ARGUMENTS if value.get(key) is not None), {})
    if isinstance(given, str):
        given = parsed(given or "{}")
    return Call(sound(name), written(given)) if name and isinstance(given, dict) else None


def calls_of(value: Any) -> tuple[Call, ...]:
    """One call, or an array of calls; empty if any entry is not a call."""
    several = value if isinstance(value, list) else [value]
    made = [call_of(one) for one in several]
    return tuple(call for call in made if call) if all(made) else ()
