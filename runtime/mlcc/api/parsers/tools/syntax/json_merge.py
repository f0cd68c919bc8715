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
_COMBINED = ("allOf", "anyOf", "oneOf", "$ref")
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
    if "oneOf" in schema and not are_apart(schema["oneOf"], target):
        raise _Unmerged
    for word in ("anyOf", "oneOf"):
        some = [one for part in _parts(schema, word) for one in _choices(part, target, left - 1)]
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


def are_apart(choices: Any, target: Callable[[str], Any]) -> bool:
    """Whether no value can be of two of these schemas: they are of different types, or objects that
    a member tells apart, as OpenAPI's discriminator does."""
    if not isinstance(choices, list):
        return False
    known = [target(one["$ref"]) if _is_reference(one) else one for one in choices]
    types = [one.get("type") for one in known if isinstance(one, dict)]
    if len(types) < len(known) or not all(isinstance(kind, str) for kind in types):
        return False
    if len({"number" if kind == "integer" else kind for kind in types}) == len(types):
        return True
    if {*types} != {"object"}:
        return False
    shared = [
        {*map(str, one["required"])} for one in known if isinstance(one.get("required"), list)
    ]
    names = set.intersection(*shared) if len(shared) == len(known) else set()
    return any(_tells_apart(known, name) for name in names)


def _is_reference(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.keys() - ANNOTATIONS == {"$ref"}


def _tells_apart(schemas: list[Schema], name: str) -> bool:
    """Whether a member has one of some texts in each, and no text in two."""
    seen = set[str]()
    for schema in schemas:
        properties = schema.get("properties")
        member = properties.get(name) if isinstance(properties, dict) else None
        if not isinstance(member, dict):
            return False
        values = member.get("enum", [member["const"]] if "const" in member else None)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            return False
        if not seen.isdisjoint(values):
            return False
        seen.update(values)
    return True


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
