"""Requests as tables of fields of JSON types, checked by one rule.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import Any

from mlcc.api.schema.json_types import ANYTHING, Json, JsonType, Text, refuse
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.util.fast_dataclass import fast_dataclass

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
