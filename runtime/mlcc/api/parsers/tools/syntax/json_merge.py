"""Schemas of objects that several parts of a schema describe, as one schema each.

`allOf`, `anyOf` and `$ref` beside other keywords become a choice of plain schemas, as far as they
are about objects: only where all names of an object are known together can each be held to its own
schema in every spelling. Parts about other values stay with llguidance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from mlcc.api.schema.json_grammar import both
from mlcc.api.schema.json_references import DEFINITIONS, inner_schemas

MOST = 32
"""Most plain schemas of one schema."""
_DEEPEST = 16
"""Most references and choices inside each other."""
_COMBINED = ("allOf", "anyOf", "$ref")
ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "example", "deprecated", "readOnly"}
    | {"writeOnly", "discriminator", "$comment", "$schema", *DEFINITIONS}
)
"""Keywords that constrain nothing where they stand."""
_OF_OBJECTS = frozenset({"properties", "required", "additionalProperties", "patternProperties"})
_SIMPLE = _OF_OBJECTS | {"type"}
Schema = dict[str, Any]


class _Unmerged(Exception):
    """The schema is not about objects alone, or has too many choices."""


def object_choices(schema: Schema, target: Callable[[str], Any]) -> list[Schema] | None:
    """Plain schemas of objects, of which one holds; None = it is none of the schemas above.
    target: the schema of a `$ref`."""
    if not any(word in schema for word in _COMBINED):
        return None
    try:
        return [*_choices(schema, target, _DEEPEST)]
    except _Unmerged:
        return None


def _choices(schema: Any, target: Callable[[str], Any], left: int) -> list[Schema]:
    if schema is True:
        return [{}]
    if not isinstance(schema, dict) or not left:
        raise _Unmerged
    own = {w: value for w, value in schema.items() if w not in ANNOTATIONS.union(_COMBINED)}
    parts: list[list[Schema]] = [[_known(own)]]
    for part in _parts(schema, "allOf"):
        parts.append(_choices(part, target, left - 1))
    some = [one for part in _parts(schema, "anyOf") for one in _choices(part, target, left - 1)]
    parts += [some] if some else []
    if "$ref" in schema:
        parts.append(_choices(target(schema["$ref"]), target, left - 1))
    found: list[Schema] = [{}]
    for part in parts:
        if len(found) * len(part) > MOST:
            raise _Unmerged
        merged = (_merged(one, other) for one, other in product(found, part))
        found = [one for one in merged if one is not None]
    if not found:
        raise _Unmerged  # llguidance says why
    return found


def _parts(schema: Schema, word: str) -> Iterator[Any]:
    parts = schema.get(word, [])
    if not isinstance(parts, list) or (word in schema and not parts):
        raise _Unmerged
    yield from parts


def _known(own: Schema) -> Schema:
    if not own.keys() <= _SIMPLE or own.get("type", "object") != "object":
        raise _Unmerged
    named = (own.get(word, {}) for word in ("properties", "patternProperties"))
    if not all(isinstance(value, dict) for value in named):
        raise _Unmerged
    if not isinstance(own.get("required", []), list):
        raise _Unmerged
    return own


def _merged(one: Schema, other: Schema) -> Schema | None:
    """The schema of what both allow; None = nothing."""
    if not one or not other:
        return one or other
    if any("patternProperties" in part for part in (one, other)):
        closed = any("additionalProperties" in part for part in (one, other))
        if closed:  # the rest of one may be named by an expression of the other
            raise _Unmerged
    names = [*one.get("properties", {}), *other.get("properties", {})]
    found: Schema = {word: "object" for part in (one, other) for word in part if word == "type"}
    properties = {
        name: both(_schema_of(name, one), _schema_of(name, other)) for name in dict.fromkeys(names)
    }
    required = dict.fromkeys([*one.get("required", []), *other.get("required", [])])
    if any(properties.get(name) is False for name in required):
        return None
    patterns = dict(one.get("patternProperties", {}))
    for pattern, value in other.get("patternProperties", {}).items():
        patterns[pattern] = both(patterns.get(pattern, True), value)
    rest = both(*(part.get("additionalProperties", True) for part in (one, other)))
    if rest is False and not required.keys() <= properties.keys():
        return None
    found |= {"properties": properties, "required": [*required], "additionalProperties": rest}
    return {**found, **({"patternProperties": patterns} if patterns else {})}


def _schema_of(name: str, schema: Mapping[str, Any]) -> Any:
    return schema.get("properties", {}).get(name, schema.get("additionalProperties", True))


def has_open_names(schema: Any) -> bool:
    """Whether an object has members with schemas of their own beside any others."""
    left = [schema]
    while left:
        this = left.pop()
        if not isinstance(this, dict):
            continue
        named = {"properties", "patternProperties", "required"} & this.keys()
        if named and this.get("additionalProperties") is not False:
            return True
        left += [inner for _, inner in inner_schemas(this)]
    return False
