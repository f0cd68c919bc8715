"""JSON types that requests are made of, and tables of fields of these types.

Each type checks a value and can say in words what it accepts. A small validator, not a schema
language: it has the types that the OpenAI API needs, runs in Pyodide without pydantic, and is
printed as Python, TypeScript, Kotlin and Swift (`tools/api_types`). An `Object` is a table of
fields, checked by one rule:

- Honoured fields are checked and returned.
- Fields that are known but not built are accepted only with a value that has no effect.
- Metadata is accepted and dropped.
- Unknown fields are ignored, as in other servers, but named in a response header and in the log
  (`unknown_fields.py`); a `closed` object refuses them.

`Tagged` is a union of tables, selected by the object's `type`. Unknown types are refused by name;
an `open` union keeps only their type, for tools that other servers run themselves (a web search),
and `unknown_fields.py` names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from mlcc.errors import InvalidRequestError, UnsupportedError, printable
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


ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "temp": ("temperature",),
    "n_predict": ("max_tokens", "num_predict"),
    "num_predict": ("max_tokens", "n_predict"),
    "max_new_tokens": ("max_tokens", "num_predict", "n_predict"),
    "max_length": ("max_tokens", "num_predict", "n_predict"),
    "max_output_tokens": ("max_tokens",),
    "max_tokens": ("max_completion_tokens", "num_predict", "n_predict"),
    "num_return_sequences": ("n",),
    "stop_sequences": ("stop",),
    "stop_strings": ("stop",),
    "format": ("response_format",),
    "n_probs": ("logprobs",),
    "typ_p": ("typical_p",),
    "input": ("messages", "prompt"),
    "prompt": ("messages",),
    "messages": ("prompt",),
    "system": ("messages",),
    "functions": ("tools",),
}
"""Other servers' names of a field; by spelling alone, `n_predict` would match `prediction`."""
LEAST_ALIKE = 0.7
"""Least ratio (difflib's) of similar spellings: `temp` and `stream` have 0.6."""


class Use(Enum):
    """What the engine does with a field."""

    HONOURED = "honoured"
    NOT_BUILT = "not built"
    METADATA = "metadata"


@fast_dataclass(frozen=True)
class Field:
    """One row: name, type and use of a field. `null` always means absent."""

    name: str
    type: JsonType = ANYTHING
    use: Use = Use.HONOURED
    required: bool = False
    neutral: tuple[Json, ...] = ()
    """Values without an effect: accepted although the field is not built."""
    advice: str = "leave it out"
    about: str = ""
    """Description for users, one sentence."""
    sets: str = ""
    """The attribute of `SamplingParams` that it sets, if any."""
    made: Callable[[Any], Any] = lambda value: value
    """Converts the checked value to the engine's."""
    recommended: bool = False
    """Whether a model's generation_config.json may set a default."""


def honoured(name: str, type: JsonType, about: str = "", *, required: bool = False) -> Field:
    """A field that the engine obeys."""
    return Field(name, type, required=required, about=about)


def sampling(
    name: str,
    type: JsonType,
    about: str,
    *,
    sets: str = "",
    made: Callable[[Any], Any] = lambda value: value,
    recommended: bool = False,
) -> Field:
    """A sampling field; `sets` defaults to its own name."""
    sets = sets or name
    return Field(name, type, about=about, sets=sets, made=made, recommended=recommended)


def not_built(name: str, *neutral: Json, advice: str = "leave it out") -> Field:
    """A field that is refused unless its value has no effect."""
    return Field(name, use=Use.NOT_BUILT, neutral=neutral, advice=advice)


def metadata(name: str, *neutral: Json) -> Field:
    """A field that never affects the answer. With `neutral`, another value is a wish that is not
    granted, and named as an unknown field is."""
    return Field(name, use=Use.METADATA, neutral=neutral)


@fast_dataclass(frozen=True)
class Object:
    """A JSON object made of fields."""

    name: str
    fields: tuple[Field, ...]
    closed: bool = False
    """Whether unknown fields are errors, as every field matters."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the known fields."""
        return frozenset(row.name for row in self.fields)

    @cached_property
    def _in_order(self) -> tuple[Field, ...]:
        """What is not built is refused before a field is missing that it stands for."""
        return tuple(sorted(self.fields, key=lambda field: field.use is not Use.NOT_BUILT))

    @property
    def wants(self) -> str:
        return "an object"

    def check(self, value: Json, where: str) -> dict[str, Any]:
        """The honoured fields that are present. Raises InvalidRequestError or UnsupportedError."""
        if not isinstance(value, Mapping):
            what = f"'{where}'" if where else "the request body"
            raise InvalidRequestError(f"{what} must be a JSON object", param=where or None)
        if self.closed:
            for name in value:
                if name not in self.names:
                    raise refusal(self, name, where)
        found: dict[str, Any] = {}
        for row in self._in_order:
            _take(row, value.get(row.name), where, found)
        return found

    def fields_of(self, body: Json) -> dict[str, Any]:
        """The honoured fields of a whole request body, as `check`."""
        return self.check(body, "")


def _take(field: Field, value: Json, where: str, found: dict[str, Any]) -> None:
    """Apply the rule of one row."""
    path = f"{where}.{field.name}" if where else field.name
    if value is None:
        if field.required:
            raise InvalidRequestError(
                f"'{path}' is missing; it must be {field.type.wants}",
                param=path,
                code="missing_required_parameter",
            )
        return
    if field.use is Use.HONOURED:
        found[field.name] = field.type.check(value, path)
    elif field.use is Use.NOT_BUILT and not is_neutral(value, field.neutral):
        raise UnsupportedError(
            f"'{path}' is not built yet, and this value would change the answer; {field.advice}",
            param=path,
            code="unsupported_parameter",
        )


def is_neutral(value: Json, neutral: Sequence[Json]) -> bool:
    """Whether the value equals one of them; true is not 1."""
    return any(value == entry and (value is True) == (entry is True) for entry in neutral)


def refusal(table: Object, name: Any, where: str) -> InvalidRequestError:
    """The error for an unknown field, with the name that was probably meant."""
    from difflib import get_close_matches  # costs start-up time in a tab, and only errors need it

    name = str(name).encode(errors="backslashreplace").decode()  # half a surrogate cannot be sent
    path = f"{where}.{name}" if where else name
    meant = [word for word in ELSEWHERE.get(name, ()) if word in table.names]
    near = meant or get_close_matches(name, table.names, n=1, cutoff=LEAST_ALIKE)
    hint = f"; did you mean '{near[0]}'?" if near else "; leave it out"
    return InvalidRequestError(
        f"'{path[:80]}' is not a field of this request{hint}",
        param=path[:80],
        code="unknown_parameter",
    )


@fast_dataclass(frozen=True)
class Tagged:
    """One of `kinds`, selected by the value of `key`."""

    what: str
    """Name for error messages, after 'must be': "a content block"."""
    kinds: Mapping[str, Object]
    key: str = "type"
    default: str = ""
    """The type of an object without the key; "" = the key is required."""
    open: bool = False
    """Whether other types are kept, by their names only."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Types that are known but not built, each with advice."""
    dropped: frozenset[str] = frozenset()
    """Types that are kept by their names only, where others are not."""

    def keeps_name(self, kind: Any) -> bool:
        """Whether an unknown type is kept, by its name only."""
        return kind in self.dropped or (self.open and kind not in self.refused)

    @property
    def wants(self) -> str:
        return self.what

    def check(self, value: Json, where: str) -> dict[str, Any]:
        """Raises InvalidRequestError or UnsupportedError naming `where`."""
        if not isinstance(value, Mapping):
            raise refuse(self, value, where)
        kind = self.kind(value)
        path = f"{where}.{self.key}"
        if kind is None:
            raise InvalidRequestError(
                f"'{path}' is missing; it must be {Text(tuple(self.kinds)).wants}",
                param=path,
                code="missing_required_parameter",
            )
        Text().check(kind, path)
        if kind in self.kinds:
            rest = {name: entry for name, entry in value.items() if name != self.key}
            return {**self.kinds[kind].check(rest, where), self.key: kind}
        if self.keeps_name(kind):
            return {self.key: kind}
        advice = self.refused.get(kind, f"send {Text(tuple(self.kinds)).wants}")
        raise UnsupportedError(
            f"'{where}' is of type {kind[:40]!a}, which is not built; {advice}",
            param=path,
            code="unsupported_value",
        )

    def kind(self, value: Mapping[str, Any]) -> Any:
        """The value of the key; None = there is none."""
        found = value.get(self.key)
        return self.default or None if found is None else found
