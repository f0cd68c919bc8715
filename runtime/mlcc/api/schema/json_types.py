"""The types of JSON values that requests are made of: numbers, strings, arrays.

Each type checks a value and can say in words what it accepts. A small validator, not a schema
language: it has the types that the OpenAI API needs, runs in Pyodide without pydantic, and is
printed as Python, TypeScript and Kotlin (`tools/api_types`). Objects are made of them in
`schema.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from mlcc.errors import InvalidRequestError, printable
from mlcc.util.fast_dataclass import fast_dataclass

Json: TypeAlias = Any


class JsonType(Protocol):
    """A type that JSON values are checked against."""

    @property
    def wants(self) -> str:
        """What is accepted, in words that follow 'must be'."""
        ...

    def check(self, value: Json, where: str) -> Json:
        """The value, checked. Raises InvalidRequestError naming `where`."""
        ...


def refuse(wanted: JsonType, value: Json, where: str) -> InvalidRequestError:
    """The error that names the accepted type and the actual value."""
    return InvalidRequestError(
        f"'{where}' must be {wanted.wants}, not {_brief(value)}", param=where, code="invalid_value"
    )


def _brief(value: Json) -> str:
    """A short, printable description of a value, for error messages."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


@fast_dataclass(frozen=True)
class Number:
    """A finite number within [low, high]."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def wants(self) -> str:
        return "a number" + _span(self.low, self.high)

    def check(self, value: Json, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise refuse(self, value, where)
        if not (self.low <= value <= self.high) or abs(value) == math.inf:
            raise refuse(self, value, where)
        return float(value)


@fast_dataclass(frozen=True)
class Integer:
    """A whole number within [low, high]."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def wants(self) -> str:
        return "a whole number" + _span(self.low, self.high)

    def check(self, value: Json, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse(self, value, where)
        if not self.low <= value <= self.high:
            raise refuse(self, value, where)
        return value

    def holds_all(self, values: Sequence[Json]) -> bool:
        """Whether all are whole numbers within bounds: a long prompt of token ids in one pass."""
        if not {*map(type, values)} <= {int}:
            return False
        return not values or (self.low <= min(values) and max(values) <= self.high)


@fast_dataclass(frozen=True)
class Flag:
    """true or false."""

    wants: str = "true or false"

    def check(self, value: Json, where: str) -> bool:
        if not isinstance(value, bool):
            raise refuse(self, value, where)
        return value


@fast_dataclass(frozen=True)
class Text:
    """A string; `choices` narrows it to the named ones."""

    choices: tuple[str, ...] = ()
    allow_empty: bool = True

    @property
    def wants(self) -> str:
        if self.choices:
            return "one of " + ", ".join(f"'{choice}'" for choice in self.choices)
        return "a string" if self.allow_empty else "a string that is not empty"

    def check(self, value: Json, where: str) -> str:
        if not isinstance(value, str) or not (value or self.allow_empty):
            raise refuse(self, value, where)
        if self.choices and value not in self.choices:
            raise refuse(self, value, where)
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InvalidRequestError(
                f"'{where}' holds half of a surrogate pair, which is no text; send valid UTF-8",
                param=where,
                code="invalid_text",
            )
        return value


NOT_EMPTY = Text(allow_empty=False)


@fast_dataclass(frozen=True)
class Many:
    """An array of one type with bounds on its length."""

    item: JsonType
    least: int = 0
    most: float = math.inf

    @property
    def wants(self) -> str:
        return f"an array of {_count(self.least, self.most)}, each {self.item.wants}"

    def check(self, value: Json, where: str) -> list[Any]:
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            raise refuse(self, value, where)
        if isinstance(self.item, Integer) and self.item.holds_all(value):
            return [*value]
        return [self.item.check(entry, f"{where}[{i}]") for i, entry in enumerate(value)]


@fast_dataclass(frozen=True)
class Either:
    """One of two shapes: an array if the value is one, else the plain type."""

    plain: JsonType
    array: JsonType

    @property
    def wants(self) -> str:
        return f"{self.plain.wants}, or {self.array.wants}"

    def check(self, value: Json, where: str) -> Json:
        if isinstance(value, list):
            return self.array.check(value, where)
        try:
            return self.plain.check(value, where)
        except InvalidRequestError as error:
            raise refuse(self, value, where) if error.code == "invalid_value" else error from None


@fast_dataclass(frozen=True)
class Custom:
    """A type with its own checker; `shapes` describe it approximately, as types."""

    wants: str
    checker: Callable[[Json, str], Json]
    shapes: tuple[JsonType, ...]

    def check(self, value: Json, where: str) -> Json:
        return self.checker(value, where)


@fast_dataclass(frozen=True)
class ByToken:
    """An object that maps token ids, as JSON keys, to values of one type."""

    item: JsonType
    most: int

    @property
    def wants(self) -> str:
        return f"an object of at most {self.most} token ids, each with {self.item.wants}"

    def check(self, value: Json, where: str) -> dict[int, Any]:
        if not isinstance(value, Mapping) or len(value) > self.most:
            raise refuse(self, value, where)
        found: dict[int, Any] = {}
        for name, entry in value.items():
            key = str(name)  # numbers, where another protocol's table has checked it already
            token = int(key) if key.isascii() and key.isdecimal() and len(key) <= 10 else None
            if token is None or token >= 2**31 or token in found:
                raise refuse(self, key, f"{where}.{printable(key[:40])}")
            found[token] = self.item.check(entry, f"{where}.{token}")
        return found


@fast_dataclass(frozen=True)
class Anything:
    """Any JSON value: for fields without an effect."""

    wants: str = "any value"

    def check(self, value: Json, where: str) -> Json:
        return value


ANYTHING = Anything()


def _span(low: float, high: float) -> str:
    if low == -math.inf and high == math.inf:
        return ""
    if high == math.inf:
        return f" of at least {low:g}"
    return f" from {low} to {high}"


def _count(least: int, most: float) -> str:
    if most == math.inf:
        return f"at least {least} entries" if least else "entries"
    return f"{least} to {most} entries"
