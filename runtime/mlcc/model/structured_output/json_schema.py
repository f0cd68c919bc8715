"""Which keywords of JSON Schema an answer is held to. One that is not is refused, by name.

llguidance refuses the keywords of JSON Schema that it does not know how to enforce, and reads over
words that are none. Here every word that is neither held to nor a mere remark is refused, for what
is misspelt was meant. Subschemas are walked, not what only looks like them (`const`, `default`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlcc.errors import InvalidRequestError, UnsupportedError

DEEPEST = 64
"""Schemas in each other, as they are written; `$ref` may lead further."""
MOST = 10_000
"""Schemas in all."""
MOST_TARGETS = 256
"""Schemas that a `$ref` names: each may lead to the next, and llguidance follows on the stack."""
REMARKS = frozenset(
    {"$schema", "$id", "$comment", "$anchor", "title", "description", "default", "examples"}
    | {"example", "deprecated", "readOnly", "writeOnly", "discriminator"}
)
"""Hold an answer to nothing, by the standard's own word (discriminator: by OpenAPI's)."""
ONE = frozenset({"items", "additionalItems", "additionalProperties"})
"""Hold a schema."""
SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Hold an array of schemas."""
NAMED = frozenset({"$defs", "definitions", "properties", "patternProperties"})
"""Hold an object of schemas."""
PLAIN = frozenset(
    {"$ref", "const", "enum", "type", "required", "minProperties", "maxProperties"}
    | {"minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
HELD_TO = ONE | SEVERAL | NAMED | PLAIN


def check_schema(schema: object, field: str) -> None:
    """Raise UnsupportedError that names the first keyword that is not held to, and its place;
    InvalidRequestError for what is no schema, or too large. field: of the request."""
    left: list[tuple[object, str, int]] = [(schema, "#", 1)]
    seen, targets = 0, set[str]()
    while left:
        this, where, depth = left.pop()
        seen += 1
        if depth > DEEPEST or seen > MOST:
            raise _invalid(f"has more than {DEEPEST} levels or {MOST} schemas; simplify it", field)
        if isinstance(this, bool):
            continue
        if not isinstance(this, dict):
            raise _invalid(
                f"has at {where[:200]} what is no schema: an object, true or false", field
            )
        for word in this:
            if word not in HELD_TO and word not in REMARKS:
                raise UnsupportedError(
                    f"the JSON Schema in '{field}' has {str(word)[:80]!a} at {where[:200]}, to "
                    "which answers cannot be held; leave it out, and check it yourself",
                    param=field or None,
                    code="unsupported_keyword",
                )
        targets.add(str(this.get("$ref")))
        if len(targets) > MOST_TARGETS:
            raise _invalid(f"refers to more than {MOST_TARGETS} schemas; simplify it", field)
        left += [(inner, f"{where}/{name}", depth + 1) for name, inner in _inner(this)]


def _inner(schema: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The schemas in a schema, by their place in it."""
    for word, value in schema.items():
        if word in NAMED and isinstance(value, dict):
            yield from ((f"{word}/{name}", inner) for name, inner in value.items())
        elif (word in SEVERAL or word == "items") and isinstance(value, list):
            yield from ((f"{word}/{i}", inner) for i, inner in enumerate(value))
        elif word in ONE:
            yield word, value


def _invalid(why: str, field: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the JSON Schema in '{field}' {why}", param=field or None, code="invalid_structure"
    )


def relaxed(schema: Any) -> Any:
    """The same without words to which answers cannot be held: for who wants as much as there is."""
    if not isinstance(schema, dict):
        return schema if isinstance(schema, bool) else {}
    return {word: _relaxed(word, value) for word, value in schema.items() if word in HELD_TO}


def _relaxed(word: str, value: Any) -> Any:
    if word in NAMED and isinstance(value, dict):
        return {name: relaxed(inner) for name, inner in value.items()}
    if (word in SEVERAL or word == "items") and isinstance(value, list):
        return [relaxed(inner) for inner in value]
    return relaxed(value) if word in ONE else value
