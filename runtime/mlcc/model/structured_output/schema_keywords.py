"""The JSON Schema keywords that are enforced. Others are refused by name.

llguidance refuses known keywords that it cannot enforce, and ignores unknown ones. Here every
keyword that is neither enforced nor an annotation is refused: a misspelled keyword was meant to
have an effect. Only subschemas are walked, not values that resemble them (`const`, `default`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlcc.errors import InvalidRequestError, UnsupportedError

DEEPEST = 64
"""Most nested schemas as written; `$ref` may lead deeper."""
MOST = 10_000
"""Most schemas in total."""
MOST_TARGETS = 256
"""Most targets of `$ref`: each may lead to the next, and llguidance recurses on the stack."""
REMARKS = frozenset(
    {"$schema", "$id", "$comment", "$anchor", "title", "description", "default", "examples"}
    | {"example", "deprecated", "readOnly", "writeOnly", "discriminator"}
)
"""Annotations, by the standard (discriminator: by OpenAPI), which constrain nothing."""
ONE = frozenset({"items", "additionalItems", "additionalProperties"})
"""Keywords with a schema as value."""
SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords with an array of schemas as value."""
NAMED = frozenset({"$defs", "definitions", "properties", "patternProperties"})
"""Keywords with an object of schemas as value."""
PLAIN = frozenset(
    {"$ref", "const", "enum", "type", "required", "minProperties", "maxProperties"}
    | {"minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
HELD_TO = ONE | SEVERAL | NAMED | PLAIN


def check_schema(schema: object, field: str) -> None:
    """Raise UnsupportedError naming the first keyword that is not enforced, and its path;
    InvalidRequestError for an invalid or too large schema. field: of the request."""
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
    """The subschemas of a schema, by their paths in it."""
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
    """A copy without the keywords that are not enforced, for callers that accept partial checks."""
    if not isinstance(schema, dict):
        return schema if isinstance(schema, bool) else {}
    return {word: _relaxed(word, value) for word, value in schema.items() if word in HELD_TO}


def _relaxed(word: str, value: Any) -> Any:
    if word in NAMED and isinstance(value, dict):
        return {name: relaxed(inner) for name, inner in value.items()}
    if (word in SEVERAL or word == "items") and isinstance(value, list):
        return [relaxed(inner) for inner in value]
    return relaxed(value) if word in ONE else value
