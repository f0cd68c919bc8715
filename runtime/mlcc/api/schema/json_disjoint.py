"""Whether schemas have no value in common, so that `oneOf` says the same as `anyOf`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

MOST = 64
"""Most schemas that are compared with each other."""
_DEEPEST = 3
"""Most objects inside each other whose members are compared."""
Target = Callable[[Any], Any]


def are_disjoint(schemas: Any, target: Target) -> bool:
    """Whether no value can be of two of these schemas: by their types, their values, or a member
    that objects need, as OpenAPI's discriminator is. target: the schema of a `$ref`."""
    if not isinstance(schemas, list) or not 0 < len(schemas) <= MOST:
        return False
    known = [_resolved(one, target) for one in schemas]
    return all(_are_apart(a, b, target, _DEEPEST) for a, b in combinations(known, 2))


def _resolved(schema: Any, target: Target) -> Any:
    for _ in range(_DEEPEST):
        if isinstance(schema, dict) and "$ref" in schema:
            schema = target(schema["$ref"])
    return schema


def _are_apart(one: Any, other: Any, target: Target, left: int) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict) or not left:
        return False
    values = _values(one), _values(other)
    if values[0] is not None and values[1] is not None:
        return values[0].isdisjoint(values[1])
    kinds = _types(one), _types(other)
    if kinds[0] is None or kinds[1] is None:
        return False
    if kinds[0].isdisjoint(kinds[1]):
        return True
    if kinds[0] != {"object"} or kinds[1] != {"object"}:
        return False
    members = [
        tuple(_resolved(_members(this).get(name), target) for this in (one, other))
        for name in _required(one) & _required(other)
    ]
    return any(_are_apart(a, b, target, left - 1) for a, b in members)


def _values(schema: Mapping[str, Any]) -> set[tuple[str, Any]] | None:
    """All values of a schema, with their types; None = not known. Floats may equal integers."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not isinstance(values, list) or not all(_is_simple(value) for value in values):
        return None
    return {(type(value).__name__, value) for value in values}


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, int))


_NAMES = {"str": "string", "bool": "boolean", "int": "number", "NoneType": "null"}


def _types(schema: Mapping[str, Any]) -> set[str] | None:
    """The types of a schema's values; None = not known. An integer is a number."""
    if (values := _values(schema)) is not None:
        return {_NAMES[kind] for kind, _ in values}
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        return None
    return {"number" if kind == "integer" else kind for kind in kinds}


def _required(schema: Mapping[str, Any]) -> set[str]:
    names = schema.get("required", [])
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    members = schema.get("properties", {})
    return members if isinstance(members, dict) else {}
