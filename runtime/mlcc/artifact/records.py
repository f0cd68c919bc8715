"""Frozen dataclasses to plain JSON values and back, strictly: every surprise names its path.

Standard library only. Knows nothing of manifests or files; `manifest.py` is its user.
"""

from __future__ import annotations

import types
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class RecordError(ValueError):
    """A value that does not fit its dataclass; the message starts with the path."""


def to_plain(value: Any) -> Any:
    """Dataclasses become dicts, tuples become lists; everything else stays."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: type[T], value: Any, path: str = "") -> T:
    """Build `kind` from parsed JSON. Unknown, missing and mistyped fields raise RecordError."""
    result: T = _decode(kind, value, path)
    return result


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, value: Any, path: str) -> Any:
    if kind is Any:
        return value
    if is_dataclass(kind) and isinstance(kind, type):
        return _decode_record(kind, value, path)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(kind, value, path)
    if origin is tuple:
        item = get_args(kind)[0]
        entries = _expect(list, value, path)
        return tuple(_decode(item, entry, f"{path}[{i}]") for i, entry in enumerate(entries))
    if origin is dict:
        item = get_args(kind)[1]
        pairs = _expect(dict, value, path).items()
        return {key: _decode(item, entry, f"{path}.{key}") for key, entry in pairs}
    return _expect(kind, value, path)


def _decode_record(kind: Any, value: Any, path: str) -> Any:
    data = _expect(dict, value, path)
    known: dict[str, Field[Any]] = {f.name: f for f in fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise RecordError(f"{_dot(path, unknown[0])}: unknown field")
    for name, field in known.items():
        required = field.default is MISSING and field.default_factory is MISSING
        if required and name not in data:
            raise RecordError(f"{_dot(path, name)}: missing field")
    hints = _hints(kind)
    return kind(**{name: _decode(hints[name], data[name], _dot(path, name)) for name in data})


def _decode_union(kind: Any, value: Any, path: str) -> Any:
    options = get_args(kind)
    for option in options:
        try:
            return _decode(option, value, path)
        except RecordError:
            continue
    names = " or ".join(_name(option) for option in options)
    raise RecordError(f"{path or 'top level'}: expected {names}, got {_shown(value)}")


def _expect(kind: Any, value: Any, path: str) -> Any:
    # type() and not isinstance(): True is no integer here.
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    expected = _name(kind)
    raise RecordError(f"{path or 'top level'}: expected {expected}, got {_shown(value)}")


def _name(kind: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a string", int: "an integer"}
    names |= {bool: "true or false", float: "a number", types.NoneType: "null"}
    return names.get(kind, str(kind))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _dot(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
