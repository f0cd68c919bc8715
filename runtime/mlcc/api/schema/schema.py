"""A request as a table of fields, and the one rule of what to do with each.

Honoured fields are checked and returned. Fields that are known but not built are accepted only with
a value that changes nothing. Metadata is accepted and dropped. What nobody here knows is ignored,
as every other server does, and named (`unknown.py`); in a `closed` object it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

from mlcc.api.schema.types import ANYTHING, Json, JsonType
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
"""What others call a field: by spelling, `n_predict` would be `prediction`."""
LEAST_ALIKE = 0.7
"""Of two spellings (difflib's ratio): `temp` and `stream` are 0.6 alike."""


class Use(Enum):
    """What the engine does with a field."""

    HONOURED = "honoured"
    NOT_BUILT = "not built"
    METADATA = "metadata"


@fast_dataclass(frozen=True)
class Field:
    """One row: a name, what it may hold, and what is done with it. `null` always means absent."""

    name: str
    type: JsonType = ANYTHING
    use: Use = Use.HONOURED
    required: bool = False
    neutral: tuple[Json, ...] = ()
    """Values that change nothing: accepted although the field is not built."""
    advice: str = "leave it out"
    about: str = ""
    """What it means, in a sentence for users."""
    sets: str = ""
    """The engine's parameter of sampling that it sets (`SamplingParams`), if it does."""
    made: Callable[[Any], Any] = lambda value: value
    """The engine's value of the checked one."""
    recommended: bool = False
    """Whether a model's generation_config.json may bring a default for it."""


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
    """A field that says how an answer is sampled; `sets` is its own name unless given."""
    sets = sets or name
    return Field(name, type, about=about, sets=sets, made=made, recommended=recommended)


def not_built(name: str, *neutral: Json, advice: str = "leave it out") -> Field:
    """A field that is refused unless its value changes nothing."""
    return Field(name, use=Use.NOT_BUILT, neutral=neutral, advice=advice)


def metadata(name: str) -> Field:
    """A field that never changes an answer."""
    return Field(name, use=Use.METADATA)


@fast_dataclass(frozen=True)
class Object:
    """A JSON object made of fields."""

    name: str
    fields: tuple[Field, ...]
    closed: bool = False
    """Whether it holds an answer to something, so that nothing of it may be overlooked."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Of the fields that are known."""
        return frozenset(field.name for field in self.fields)

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
        for field in self.fields:
            _take(field, value.get(field.name), where, found)
        return found


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
    elif field.use is Use.NOT_BUILT and not _is_neutral(value, field.neutral):
        raise UnsupportedError(
            f"'{path}' is not built yet, and this value would change the answer; {field.advice}",
            param=path,
            code="unsupported_parameter",
        )


def _is_neutral(value: Json, neutral: Sequence[Json]) -> bool:
    """Equal to one of them, where true is not 1."""
    return any(value == entry and (value is True) == (entry is True) for entry in neutral)


def refusal(table: Object, name: Any, where: str) -> InvalidRequestError:
    """Of a field that a table does not have, with the one that may be meant."""
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
