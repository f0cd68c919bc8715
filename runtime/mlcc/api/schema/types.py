"""JSON types as data: each can check a value and say in words what it wants.

A tiny validator, not a schema language: just what the OpenAI surface needs, so that it runs in
Pyodide without pydantic and is printed as TypeScript and Kotlin (`tools/api_types`).

Whether a value of a body can be sent back as it came: what Python reads of JSON may be more than
UTF-8 and JSON can write. For protocols whose answers repeat their requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from mlcc.errors import InvalidRequestError, printable
from mlcc.util.fast_dataclass import fast_dataclass

Json: TypeAlias = Any


class JsonType(Protocol):
    """Something that a JSON value can be checked against."""

    @property
    def wants(self) -> str:
        """What is accepted, in words that follow 'must be'."""
        ...

    def check(self, value: Json, where: str) -> Json:
        """The value, checked. Raises InvalidRequestError naming `where`."""
        ...


def refuse(wanted: JsonType, value: Json, where: str) -> InvalidRequestError:
    """The error that says what was wanted at `where` and what came instead."""
    return InvalidRequestError(
        f"'{where}' must be {wanted.wants}, not {_brief(value)}", param=where, code="invalid_value"
    )


def _brief(value: Json) -> str:
    """A short picture of a value, safe to put into an error message."""
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


@fast_dataclass(frozen=True)
class Many:
    """An array of one type with least and most entries."""

    item: JsonType
    least: int = 0
    most: float = math.inf

    @property
    def wants(self) -> str:
        return f"an array of {_count(self.least, self.most)}, each {self.item.wants}"

    def check(self, value: Json, where: str) -> list[Any]:
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            raise refuse(self, value, where)
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
    """A shape with a checker of its own; `shapes` say the same less exactly, as types."""

    wants: str
    checker: Callable[[Json, str], Json]
    shapes: tuple[JsonType, ...]

    def check(self, value: Json, where: str) -> Json:
        return self.checker(value, where)


@fast_dataclass(frozen=True)
class ByToken:
    """An object from ids of tokens, written as JSON's keys are, to a value of one type."""

    item: JsonType
    most: int

    @property
    def wants(self) -> str:
        return f"an object of at most {self.most} token ids, each with {self.item.wants}"

    def check(self, value: Json, where: str) -> dict[int, Any]:
        if not isinstance(value, Mapping) or len(value) > self.most:
            raise refuse(self, value, where)
        found: dict[int, Any] = {}
        for key, entry in value.items():
            token = int(key) if key.isascii() and key.isdecimal() and len(key) <= 10 else None
            if token is None or token >= 2**31 or token in found:
                raise refuse(self, key, f"{where}.{printable(key[:40])}")
            found[token] = self.item.check(entry, f"{where}.{token}")
        return found


@fast_dataclass(frozen=True)
class Anything:
    """Any JSON value: for fields that change nothing."""

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


def check_sendable(value: Json) -> None:
    """Raises InvalidRequestError, which names the place, for half of a surrogate pair, in keys too,
    and for a number that is too large for JSON's readers (1e999)."""
    left: list[tuple[Json, str]] = [(value, "")]
    while left:
        this, where = left.pop()
        if isinstance(this, str):
            Text().check(this, where)
        elif isinstance(this, float) and not math.isfinite(this):
            raise InvalidRequestError(
                f"'{where}' is too large a number; send a smaller one",
                param=where,
                code="invalid_value",
            )
        elif isinstance(this, list):
            left += [(entry, f"{where}[{i}]") for i, entry in enumerate(this)]
        elif isinstance(this, dict):
            for key, entry in this.items():
                place = f"{where}.{printable(key[:40])}" if where else printable(key[:40])
                Text().check(key, place)
                left.append((entry, place))
