"""JSON in text that is not complete yet, and calls written as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from mlcc.api.tools.port import Call

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]"]', re.DOTALL)
NAMES = ("name", "function", "tool_name", "tool")
ARGUMENTS = ("arguments", "parameters", "args", "input")


def json_end(text: str, start: int = 0) -> int | None:
    """Where the object or array ends that begins at `start`; None = not yet. Whether it is sound is
    not said."""
    depth = 0
    for found in _MARK.finditer(text, start):
        mark = found[0]
        if mark == '"':  # a string that is not complete
            return None
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth <= 0:
                return found.end()
    return None


def parsed(text: str) -> Any:
    """The value, or None for what is no JSON."""
    try:
        return json.loads(text, strict=False)  # models write line ends into strings
    except (ValueError, RecursionError):
        return None


def written(value: Any) -> str:
    """JSON's text of arguments."""
    return json.dumps(value, ensure_ascii=False)


def call_of(value: Any) -> Call | None:
    """An object that names a tool and its arguments, in one of the usual words."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = next((value[key] for key in NAMES if isinstance(value.get(key), str)), "")
    given: Any = next((value[key] for key in ARGUMENTS if value.get(key) is not None), {})
    if isinstance(given, str):
        given = parsed(given or "{}")
    return Call(name, written(given)) if name and isinstance(given, dict) else None


def calls_of(value: Any) -> tuple[Call, ...]:
    """One call, or an array of calls; nothing if any is none."""
    several = value if isinstance(value, list) else [value]
    made = [call_of(one) for one in several]
    return tuple(call for call in made if call) if all(made) else ()
