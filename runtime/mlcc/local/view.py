"""The answers of the Python API: read-only JSON objects with attributes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, is_typeddict

from mlcc.api.openai import shapes
from mlcc.errors import InvalidRequestError

_FIELDS = frozenset(
    name for shape in vars(shapes).values() if is_typeddict(shape) for name in shape.__annotations__
)
"""Fields that answers can have. An absent one reads as None, as in OpenAI's client; any other name
is an AttributeError."""


class View(Mapping[str, Any]):
    """A read-only JSON object: `answer.usage.total_tokens`, `answer["usage"]`."""

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def to_dict(self) -> dict[str, Any]:
        """The underlying JSON, not a copy: do not change it."""
        return dict(self._data)

    if not TYPE_CHECKING:  # a type checker knows the attributes by `mlcc.types`, and no others

        def __getattr__(self, name: str) -> Any:
            try:
                return self[name]
            except KeyError:
                if name in _FIELDS:
                    return None
                fields = ", ".join(self._data)
                raise AttributeError(f"there is no '{name}'; there are {fields}") from None

    def __getitem__(self, name: str) -> Any:
        return _seen(self._data[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"View({self._data!r})"


def _seen(value: Any) -> Any:
    if isinstance(value, dict):
        return View(value)
    return [_seen(item) for item in value] if isinstance(value, list) else value


def encoded(fields: Mapping[str, Any]) -> bytes:
    """The fields as JSON. Raises InvalidRequestError for values that JSON does not have."""
    try:
        return json.dumps(fields, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"a field is not JSON: {error}", code="invalid_json") from None


def _plain(value: Any) -> Any:
    """Views become dicts: a message of an answer may be part of the next request."""
    if isinstance(value, View):
        return value.to_dict()
    raise TypeError(f"{value!r} of type {type(value).__name__}")
