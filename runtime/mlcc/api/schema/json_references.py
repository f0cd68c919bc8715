"""`$ref` of JSON Schemas: JSON pointers (RFC 6901, as URI fragments) to any place of the document.

OpenAPI's users point to `#/components/schemas/X`, others to `#/properties/a/items/0`. All that
reads schemas here knows `$defs` and `definitions` alone: `with_definitions` moves the targets of
other pointers there. References to other documents, and in a schema with its own `$id`, stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

ONE = frozenset({"items", "additionalItems", "additionalProperties"})
"""Keywords with a schema as value."""
SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords with an array of schemas as value."""
DEFINITIONS = ("$defs", "definitions")
NAMED = frozenset({*DEFINITIONS, "properties", "patternProperties"})
"""Keywords with an object of schemas as value."""
MOST_TARGETS = 256
"""Most targets of `$ref`: each may lead to the next, and llguidance recurses on the stack."""
_DATA = frozenset({"const", "enum", "default", "examples", "example", "required", "type"})
"""Keywords that have no schema in their values, only what may look like one."""
_OTHERS = frozenset(
    {"not", "if", "then", "else", "contains", "propertyNames", "contentSchema", "dependencies"}
    | {"dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "disallow", "extends"}
)
"""Keywords with schemas to which answers cannot be held."""
_URI = "!$&'()*+,:;=?@"
"""Characters of a step in a URI, beside letters, digits and `-._~`. Pydantic writes brackets, as of
`Box[int]`, and names may have any letters."""
_NOWHERE = object()
Steps: TypeAlias = tuple[str, ...]


def steps_of(ref: object) -> Steps | None:
    """The steps of a pointer into the same document; None = it is no such pointer."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    steps = unquote(ref[1:], errors="replace").split("/")[1:]
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def target_of(root: Any, ref: object) -> Any:
    """The schema to which a pointer leads; None = there is none, or it is no pointer."""
    steps = steps_of(ref)
    found = _NOWHERE if steps is None else _at(root, steps)
    return found if isinstance(found, (dict, bool)) else None


def _at(this: Any, steps: Steps) -> Any:
    for step in steps:
        if isinstance(this, dict) and step in this:
            this = this[step]
        elif isinstance(this, list) and _is_index(step, len(this)):
            this = this[int(step)]
        else:
            return _NOWHERE
    return this


def _is_index(step: str, length: int) -> bool:
    return step.isascii() and step.isdigit() and str(int(step[:9])) == step and int(step) < length


def uri_of(ref: str) -> str:
    """A reference as a URI has it."""
    steps = steps_of(ref)
    return quote(ref, safe=_URI + "#%/") if steps is None else _pointer(steps)


def _pointer(steps: Steps) -> str:
    names = (step.replace("~", "~0").replace("/", "~1") for step in steps)
    return "#" + "".join("/" + quote(name, safe=_URI) for name in names)


def inner_schemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The subschemas of a schema, by their paths in it."""
    for word, value in schema.items():
        if word in NAMED and isinstance(value, dict):
            yield from ((f"{word}/{name}", inner) for name, inner in value.items())
        elif (word in SEVERAL or word == "items") and isinstance(value, list):
            yield from ((f"{word}/{i}", inner) for i, inner in enumerate(value))
        elif word in ONE:
            yield word, value


def with_definitions(root: Any) -> tuple[Any, dict[str, Steps]]:
    """The schema with its targets of `$ref` in `$defs` and `definitions`, and where those that were
    moved came from, by their names in `$defs`. An unknown keyword that held such targets, as
    `components` does, is left out. Dead pointers stay as they are."""
    if not isinstance(root, dict) or not 0 < len(_targets(root)[1]) <= MOST_TARGETS:
        return root, {}
    root = json.loads(json.dumps(root))
    schemas, targets = _targets(root)
    definitions = root.setdefault("$defs", {})
    if not isinstance(definitions, dict):
        return root, {}
    names = _new_names(targets, definitions)
    for schema in schemas:
        if (steps := steps_of(schema.get("$ref"))) in names:
            schema["$ref"] = _pointer(("$defs", names[steps]))
    holders = [found for steps in targets if (found := _passed(root, steps))]
    for steps in sorted(targets, key=len, reverse=True):  # the inner ones first
        owner = _at(root, steps[:-1])
        place: Any = int(steps[-1]) if isinstance(owner, list) else steps[-1]
        definitions[names[steps]] = owner[place]
        owner[place] = {"$ref": _pointer(("$defs", names[steps]))}
    for holder, word in holders:
        if word not in _OTHERS:
            holder.pop(word, None)
    return root, {name: steps for steps, name in names.items()}


def _targets(root: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Steps]]:
    """The schemas of a document, with those to which only pointers lead, and the targets that are
    not in `$defs` and `definitions`."""
    left: list[Any] = [root]
    schemas, seen, targets = list[dict[str, Any]](), set[int](), dict[Steps, None]()
    while left:
        schema = left.pop()
        own = isinstance(schema, dict) and "$id" in schema and schema is not root
        if not isinstance(schema, dict) or own or id(schema) in seen:
            continue
        seen.add(id(schema))
        schemas.append(schema)
        left += [inner for _, inner in inner_schemas(schema)]
        steps = steps_of(schema.get("$ref"))
        if not steps or target_of(root, schema["$ref"]) is None:
            continue
        passed = _passed(root, steps)
        if passed and passed[1] in _DATA:
            continue
        left.append(_at(root, steps))
        if len(steps) != 2 or steps[0] not in DEFINITIONS:
            targets[steps] = None
    return schemas, [*targets]


def _new_names(targets: list[Steps], taken: Mapping[str, Any]) -> dict[Steps, str]:
    """Names that `$defs` has not yet."""
    names, used = dict[Steps, str](), {*taken}
    for steps in targets:
        name = ".".join(steps)
        while name in used:
            name += "_"
        used.add(name)
        names[steps] = name
    return names


def _passed(root: dict[str, Any], steps: Steps) -> tuple[dict[str, Any], str] | None:
    """The first word on the way to a target that is none of the keywords with schemas that are
    held, and the schema that has it."""
    this: Any = root
    while steps and isinstance(this, dict):
        word = steps[0]
        if word not in ONE | SEVERAL | NAMED:
            return this, word
        used = 2 if word in NAMED or isinstance(this[word], list) else 1
        this, steps = _at(this, steps[:used]), steps[used:]
    return None
