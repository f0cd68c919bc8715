"""Compares a JSON value with the expectation of a vector: plain JSON and a few placeholders.

Independent of HTTP and of OpenAI's formats (`answers.py`). README.md lists the placeholders.
"""

from __future__ import annotations

import base64
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class Mismatch(AssertionError):
    """The answer differs from the vector's expectation; the message says where."""


@dataclass
class Matcher:
    """The comparisons of one vector. With `recording`, `$record` takes the actual value."""

    recording: bool = False
    names: dict[str, Json] = field(default_factory=dict)
    """Values bound by `$same` so far."""

    def check(self, expected: Json, actual: Json, where: str) -> None:
        """Raise Mismatch unless `actual` matches the expectation, ValueError for an unknown
        rule."""
        if (rule := rule_of(expected)) is not None:
            name, argument = rule
            if name not in _RULES:
                raise ValueError(
                    f"{where}: no placeholder '{name}'; use one of {', '.join(_RULES)}"
                )
            _RULES[name](self, argument, actual, where)
            if name == "$record" and self.recording:
                expected[name] = actual
        elif isinstance(expected, dict):
            self._object(expected, actual, where, closed=True)
        elif isinstance(expected, list):
            self._array(expected, actual, where)
        elif not _equal(expected, actual):
            raise differ(where, expected, actual)

    def _object(self, expected: Json, actual: Json, where: str, *, closed: bool) -> None:
        if not isinstance(actual, dict):
            raise differ(where, expected, actual)
        if missing := expected.keys() - actual.keys():
            raise Mismatch(f"{where}: {_words(missing)} missing from {_short(actual)}")
        if closed and (extra := actual.keys() - expected.keys()):
            raise Mismatch(f"{where}: {_words(extra)} not expected in {_short(actual)}")
        for key, value in expected.items():
            self.check(value, actual[key], f"{where}.{key}")

    def _array(self, expected: Json, actual: Json, where: str) -> None:
        if not isinstance(actual, list) or len(actual) != len(expected):
            raise differ(where, expected, actual)
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            self.check(one, other, f"{where}[{index}]")

    def _any(self, kind: str, actual: Json, where: str) -> None:
        is_flag = isinstance(actual, bool)
        if not isinstance(actual, _TYPES[kind]) or is_flag is not (kind == "boolean"):
            raise Mismatch(f"{where}: wanted any {kind}, got {_short(actual)}")

    def _regex(self, pattern: str, actual: Json, where: str) -> None:
        if not isinstance(actual, str) or not re.search(pattern, actual):
            raise Mismatch(f"{where}: wanted text like /{pattern}/, got {_short(actual)}")

    def _has(self, parts: list[str], actual: Json, where: str) -> None:
        lacking = [part for part in parts if not isinstance(actual, str) or part not in actual]
        if lacking:
            raise Mismatch(f"{where}: {_words(lacking)} missing from {_short(actual)}")

    def _open(self, expected: Json, actual: Json, where: str) -> None:
        self._object(expected, actual, where, closed=False)

    def _same(self, name: str, actual: Json, where: str) -> None:
        if not _equal(self.names.setdefault(name, actual), actual):
            raise differ(f"{where} ({name})", self.names[name], actual)

    def _differs(self, name: str, actual: Json, where: str) -> None:
        if name not in self.names:
            raise ValueError(f"{where}: nothing is named '{name}' yet; use $same first")
        if _equal(self.names[name], actual):
            raise Mismatch(f"{where}: is the same as '{name}': {_short(actual)}")

    def _below(self, argument: tuple[str, float], actual: Json, where: str) -> None:
        name, distance = argument
        if not self.names[name] <= actual < self.names[name] + distance:
            wanted = f"from '{name}' ({self.names[name]}) to less than {distance} more"
            raise Mismatch(f"{where}: wanted {wanted}, got {_short(actual)}")

    def _near(self, argument: tuple[Json, float], actual: Json, where: str) -> None:
        wanted, bound = argument
        found = _floats(actual) if isinstance(actual, str) else actual
        if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
            for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
                self._near((one, bound), other, f"{where}[{index}]")
        elif not isinstance(wanted, (int, float)) or not isinstance(found, (int, float)):
            raise differ(where, wanted, actual)
        elif not abs(wanted - found) <= bound:
            raise Mismatch(f"{where}: wanted {wanted} within {bound}, got {found}")

    def _recorded(self, expected: Json, actual: Json, where: str) -> None:
        if not self.recording and not _equal(expected, actual):
            raise differ(where, expected, actual)


_RULES: dict[str, Callable[[Matcher, Any, Json, str], None]] = {
    "$any": Matcher._any,
    "$regex": Matcher._regex,
    "$has": Matcher._has,
    "$open": Matcher._open,
    "$same": Matcher._same,
    "$differs": Matcher._differs,
    "$below": Matcher._below,
    "$near": Matcher._near,
    "$record": Matcher._recorded,
}


def rule_of(expected: Json) -> tuple[str, Any] | None:
    """(name, argument) if this is a placeholder: an object whose one key begins with `$`."""
    if isinstance(expected, dict) and len(expected) == 1:
        ((name, argument),) = expected.items()
        if name.startswith("$"):
            return name, argument
    return None


def _floats(text: str) -> Json:
    """The numbers of base64-encoded float32; any other value unchanged."""
    try:
        return array("f", base64.b64decode(text, validate=True)).tolist()
    except ValueError:
        return text


def differ(where: str, expected: Json, actual: Json) -> Mismatch:
    """The error for two values that should be equal."""
    return Mismatch(f"{where}: wanted {_short(expected)}, got {_short(actual)}")


def _equal(one: Json, other: Json) -> bool:
    """Equal as JSON, where true is not 1, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


def _words(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
