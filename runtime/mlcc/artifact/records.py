"""Strict conversion between frozen dataclasses and JSON values; errors name the path.

Standard library only. Used by `manifest.py` and `mlcc.model.kv_transfer`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Decode = Callable[[Any], Any]
"""Converts parsed JSON to a value of one type; built once per type. Raises RecordError."""


class RecordError(ValueError):
    """A value that does not fit its dataclass; the message starts with the path."""

    def __init__(self, fault: str, path: str = "") -> None:
        super().__init__(f"{path.removeprefix('.') or 'top level'}: {fault}")
        self._fault, self._path = fault, path

    def within(self, step: str) -> RecordError:
        """The same error with the path extended by an outer step: `.name` or `[i]`."""
        return RecordError(self._fault, step + self._path)


def to_plain(value: Any) -> Any:
    """Dataclasses become dicts, tuples become lists; everything else stays."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: type[T], value: Any) -> T:
    """Build `kind` from parsed JSON. Unknown, missing and mistyped fields raise RecordError."""
    decode: Callable[[Any], T] = _decoder(cast(Any, kind))
    return decode(value)


@cache
def _decoder(kind: Any) -> Decode:
    if kind is Any:
        return lambda value: value
    if is_dataclass(kind):
        return _record(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is tuple and arguments[-1] is not ...:
        return _row([_decoder(argument) for argument in arguments])
    if origin in (tuple, Sequence):
        return _list(_decoder(arguments[0]))
    if origin is Literal:
        return _one_of(arguments)
    if origin is dict:
        return _object(_decoder(arguments[1]))
    return _exactly(kind)


def _record(kind: Any) -> Decode:
    hints = get_type_hints(kind)
    decoders = {field.name: _decoder(hints[field.name]) for field in fields(kind)}
    required = {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}
    plain = _exactly(dict)

    def decode(value: Any) -> Any:
        found: dict[str, Any] = {}
        entries = plain(value)
        if unknown := entries.keys() - decoders.keys():
            raise RecordError("unknown field", f".{min(unknown)}")
        if missing := required - entries.keys():
            raise RecordError("missing field", f".{min(missing)}")
        for name, entry in entries.items():
            try:
                found[name] = decoders[name](entry)
            except RecordError as error:
                raise error.within(f".{name}") from error
        return kind(**found)

    return decode


def _list(item: Decode) -> Decode:
    plain = _exactly(list)

    def decode(value: Any) -> tuple[Any, ...]:
        found: list[Any] = []
        for entry in plain(value):
            try:
                found.append(item(entry))
            except RecordError as error:
                raise error.within(f"[{len(found)}]") from error
        return tuple(found)

    return decode


def _row(items: list[Decode]) -> Decode:
    """A tuple of fixed length with a type per entry."""
    plain = _exactly(list)

    def decode(value: Any) -> tuple[Any, ...]:
        entries = plain(value)
        if len(entries) != len(items):
            raise RecordError(f"expected {len(items)} entries, got {len(entries)}")
        return tuple(item(entry) for item, entry in zip(items, entries, strict=True))

    return decode


def _one_of(values: tuple[Any, ...]) -> Decode:
    def decode(value: Any) -> Any:
        if type(value) is str and value in values:
            return value
        raise RecordError(f"expected one of {', '.join(map(str, values))}, got {_shown(value)}")

    return decode


def _object(item: Decode) -> Decode:
    plain = _exactly(dict)

    def decode(value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, entry in plain(value).items():
            try:
                found[name] = item(entry)
            except RecordError as error:
                raise error.within(f".{name}") from error
        return found

    return decode


def _union(options: tuple[Any, ...]) -> Decode:
    decoders = [_decoder(option) for option in options]
    expected = " or ".join(_name(option) for option in options)

    def decode(value: Any) -> Any:
        for option in decoders:
            try:
                return option(value)
            except RecordError:
                continue
        raise RecordError(f"expected {expected}, got {_shown(value)}")

    return decode


def _exactly(kind: Any) -> Decode:
    def decode(value: Any) -> Any:
        # type() and not isinstance(): True is no integer here.
        if type(value) is kind or (kind is float and type(value) is int):
            return value
        raise RecordError(f"expected {_name(kind)}, got {_shown(value)}")

    return decode


def _name(kind: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a string", int: "an integer"}
    names |= {bool: "true or false", float: "a number", types.NoneType: "null"}
    return names.get(kind, str(kind))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
