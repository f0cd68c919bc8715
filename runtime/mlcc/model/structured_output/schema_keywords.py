"""The JSON Schema keywords that are enforced. Others are refused by name.

llguidance refuses known keywords that it cannot enforce, and ignores unknown ones. Here every
keyword that is neither enforced nor an annotation is refused: a misspelled keyword was meant to
have an effect. Only subschemas are walked, not values that resemble them (`const`, `default`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mlcc.api.schema.json_disjoint import are_disjoint
from mlcc.api.schema.json_grammar import add_any_of, matched_names, whole
from mlcc.api.schema.json_references import (
    MOST_TARGETS,
    NAMED,
    ONE,
    SEVERAL,
    Steps,
    inner_schemas,
    steps_of,
    target_of,
    with_definitions,
)
from mlcc.api.schema.tool_fields import without_nulls
from mlcc.errors import InvalidRequestError, UnsupportedError

DEEPEST = 64
"""Most nested schemas as written; `$ref` may lead deeper."""
MOST = 10_000
"""Most schemas in total."""
REMARKS = frozenset(
    {"$schema", "$id", "$comment", "$anchor", "title", "description", "default", "examples"}
    | {"example", "deprecated", "readOnly", "writeOnly", "discriminator"}
)
"""Annotations, by the standard (discriminator: by OpenAPI), which constrain nothing."""
PLAIN = frozenset(
    {"$ref", "const", "enum", "type", "required", "minProperties", "maxProperties"}
    | {"minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
"""Values of `format` that llguidance enforces."""
LARGEST_BOUND, LONGEST = 1 << 62, (1 << 32) - 1
"""Bounds of numbers must be smaller, lengths of strings at most so large: llguidance refuses
others, as zod's of float64 and of the integers of JavaScript."""
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
HELD_TO = ONE | SEVERAL | NAMED | PLAIN


def check_schema(schema: object, field: str, unique_names: bool = True) -> None:
    """Raise UnsupportedError naming the first keyword that is not enforced, and its path;
    InvalidRequestError for an invalid or too large schema. field: of the request. unique_names: no
    name that a schema leaves open comes twice (`unique_names.py`)."""
    schema, moved = with_definitions(schema)
    left: list[tuple[object, object, str, int]] = [(schema, schema, "#", 1)]
    seen, targets = 0, set[str]()
    while left:
        this, document, where, depth = left.pop()
        seen += 1
        if depth > DEEPEST or seen > MOST:
            raise _invalid(f"has more than {DEEPEST} levels or {MOST} schemas; simplify it", field)
        if isinstance(this, bool):
            continue
        if not isinstance(this, dict):
            raise _invalid(
                f"has at {where[:200]} what is no schema: an object, true or false", field
            )
        document = this if "$id" in this else document
        _check_words(this, document, where, field, unique_names)
        targets.add(str(this.get("$ref")))
        if len(targets) > MOST_TARGETS:
            raise _invalid(f"refers to more than {MOST_TARGETS} schemas; simplify it", field)
        left += [
            (inner, document, _place(where, name, moved), depth + 1)
            for name, inner in inner_schemas(this)
        ]
    if not _Ends(schema).ends(schema):
        raise _invalid("has no value that ends: what it requires requires itself again", field)


def _check_words(
    schema: dict[str, Any], document: object, where: str, field: str, unique_names: bool
) -> None:
    for word in schema:
        if word not in HELD_TO and word not in REMARKS:
            raise UnsupportedError(
                f"the JSON Schema in '{field}' has {str(word)[:80]!a} at {where[:200]}, to "
                "which answers cannot be held; leave it out, and check it yourself",
                param=field or None,
                code="unsupported_keyword",
            )
    if not unique_names and (held := _repeats(schema)):
        raise UnsupportedError(
            f"the JSON Schema in '{field}' has 'minProperties' at {where[:200]}, to which answers "
            f"cannot be held beyond {held}, as open names may come twice in this model's calls; "
            "list the names in 'properties', or check it yourself",
            param=field or None,
            code="unsupported_keyword",
        )
    ref = schema.get("$ref")
    if steps_of(ref) is not None and target_of(document, ref) is None:
        raise _invalid(f"refers at {where[:200]} to {str(ref)[:200]!a}, where is no schema", field)


def _repeats(schema: dict[str, Any]) -> int:
    """The number of `minProperties` to which an object is held, if that is less: a name that no
    schema has may come twice. 0 = held."""
    least, required = whole(schema.get("minProperties")), schema.get("required", [])
    if not isinstance(least, int) or not isinstance(required, list):
        return 0
    patterns = schema.get("patternProperties", {})
    few = all(matched_names(str(pattern)) is not None for pattern in patterns)
    closed = schema.get("additionalProperties") is False and few
    held = len({*map(str, required)}) + 1
    return held if least > held and not closed else 0


def _place(where: str, name: str, moved: Mapping[str, Steps]) -> str:
    """The path of an inner schema, as it was before definitions were moved."""
    steps = moved.get(name.removeprefix("$defs/")) if where == "#" else None
    return f"{where}/{name if steps is None else '/'.join(steps)}"


class _Ends:
    """Finds schemas whose values never end, as each requires another of its kind."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._open: set[str] = set()
        """Targets of `$ref` that are being looked at."""
        self._known: set[str] = set()
        """Targets that end."""
        self._left = MOST
        """Schemas that are still looked at; then the others count as good."""

    def ends(self, schema: object) -> bool:
        """Whether a value of this schema may end."""
        self._left -= 1
        if self._left < 0 or not isinstance(schema, dict) or {"const", "enum"} & schema.keys():
            return True
        for word, judge in (("allOf", all), ("anyOf", any), ("oneOf", any)):
            choices = schema.get(word)
            if isinstance(choices, list) and choices and not judge(map(self.ends, choices)):
                return False
        return self._target_ends(schema.get("$ref")) and all(map(self.ends, _needed(schema)))

    def _target_ends(self, ref: object) -> bool:
        if not isinstance(ref, str) or steps_of(ref) is None or ref in self._known:
            return True
        if ref in self._open:
            return False
        self._open.add(ref)
        good = self.ends(target_of(self._root, ref))
        self._open.remove(ref)
        if good:
            self._known.add(ref)
        return good


def _needed(schema: dict[str, Any]) -> Iterator[object]:
    """The schemas of the parts that every value of a schema has."""
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        names = schema.get("required")
        for name in names if isinstance(names, list) else ():
            yield schema["properties"].get(name) if isinstance(name, str) else None
    least = schema.get("minItems", 0)
    if schema.get("type") == "array" and isinstance(least, int) and least > 0:
        first = schema.get("prefixItems", [])
        first = first[:least] if isinstance(first, list) else []
        yield from first
        if len(first) < least:
            yield schema.get("items")


def _invalid(why: str, field: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the JSON Schema in '{field}' {why}", param=field or None, code="invalid_structure"
    )


def relaxed(schema: Any, level: int = 0, unique_names: bool = True) -> tuple[Any, list[str]]:
    """A copy with the keywords that can be enforced, and the paths of those that are left out, for
    callers that accept partial checks. Keywords that are null count as absent, as in tools.

    level 0 leaves out what is never enforced. The others also leave out what llguidance refuses for
    some schemas: `LEVELS` of them, for a caller to try in order. unique_names: as for
    `check_schema`.
    """
    schema, moved = with_definitions(schema)
    if isinstance(schema, dict):
        schema = without_nulls(schema)
    how = _Relaxing(level, unique_names, schema)
    found = _relaxed(schema, "", how)
    return found, [_field(place, moved) for place in how.left_out]


def _field(place: str, moved: Mapping[str, Steps]) -> str:
    """The path of a keyword, as it was before definitions were moved."""
    for name, steps in moved.items():
        rest = place.removeprefix(f".$defs.{name}")
        if rest != place and rest[:1] in ("", ".", "["):
            return "." + ".".join(steps) + rest
    return place


LEVELS = 6
"""1: of `oneOf` several may hold. 2: expressions with look-around, references to groups, or what
only ECMA 262 has (`[^]`, `\\cJ`). 3: a `format` beside an expression, which may say otherwise (
zod's times have no zone). 4: numbers of properties. 5: all expressions."""
_LOOKS = re.compile(r"\(\?<?[=!]|\\[1-9bBc]|\\k<|\[\^?\]")


@dataclass(frozen=True)
class _Relaxing:
    """What `relaxed` does, and the paths that it has left out."""

    level: int
    unique_names: bool
    root: Any
    left_out: list[str] = field(default_factory=list)


def _relaxed(schema: Any, where: str, how: _Relaxing) -> Any:
    if not isinstance(schema, dict):
        return schema if isinstance(schema, bool) else {}
    found: dict[str, Any] = {}
    schema = _with_names(schema, how.root)
    for word, value in schema.items():
        place = f"{where}.{word}"
        if word in REMARKS:
            if word.startswith("$") or word == "discriminator":  # what `$ref` and `oneOf` need
                found[word] = value
        elif _is_enforced(word, value, how.level):
            found[word] = _inside(word, value, place, how)
        else:
            how.left_out.append(place)
    if "patternProperties" in schema.keys() - found.keys() and "additionalProperties" in found:
        del found["additionalProperties"]  # would be about other names now
        how.left_out.append(f"{where}.additionalProperties")
    if not how.unique_names and (held := _repeats(found)):
        found["minProperties"] = held
        how.left_out.append(f"{where}.minProperties")
    if how.level >= 3 and {"format", "pattern"} <= found.keys():
        del found["format"]
        how.left_out.append(f"{where}.format")
    either = found.get("oneOf")
    if (
        how.level >= 1
        and either is not None
        and not are_disjoint(either, partial(target_of, how.root))
    ):
        how.left_out.append(f"{where}.oneOf")
        add_any_of(found, found.pop("oneOf"))
    return found


def _is_enforced(word: str, value: Any, level: int) -> bool:
    """Whether a keyword is enforced with this value."""
    if word not in HELD_TO:
        return False
    if word == "format":
        return value in FORMATS
    if isinstance(value, (int, float)) and _is_beyond(word, value):
        return False
    if level >= 2 and word in ("pattern", "patternProperties"):
        texts = value if isinstance(value, dict) else [str(value)]
        if any(map(_LOOKS.search, texts)):
            return False
        return level < 5 or not all(map(_is_expression, texts))
    return level < 4 or word not in ("minProperties", "maxProperties")


def _is_beyond(word: str, value: float) -> bool:
    """Whether a number is too large for what enforces this keyword."""
    if word in _BOUNDS:
        return abs(value) >= LARGEST_BOUND
    return word in ("minLength", "maxLength") and value > LONGEST


def _is_expression(text: str) -> bool:
    """Whether it is a regular expression; if not, the schema is refused for it."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _inside(word: str, value: Any, where: str, how: _Relaxing) -> Any:
    """The value of a keyword, with its schemas relaxed."""
    if word in NAMED and isinstance(value, dict):
        return {name: _relaxed(inner, f"{where}.{name}", how) for name, inner in value.items()}
    if (word in SEVERAL or word == "items") and isinstance(value, list):
        return [_relaxed(inner, f"{where}[{i}]", how) for i, inner in enumerate(value)]
    return _relaxed(value, where, how) if word in ONE else value


def _with_names(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """A schema of which `propertyNames` lists the names, or has an expression, with the keywords
    that say the same."""
    names = schema.get("propertyNames")
    if isinstance(names, dict) and names.keys() == {"$ref"}:  # pydantic's, of a class of names
        names = target_of(root, names["$ref"])
    if not isinstance(names, dict) or {"properties", "patternProperties"} & schema.keys():
        return schema
    value = schema.get("additionalProperties", True)
    rest = {word: v for word, v in schema.items() if word != "propertyNames"}
    if isinstance(listed := names.get("enum"), list) and all(isinstance(n, str) for n in listed):
        return {**rest, "properties": dict.fromkeys(listed, value), "additionalProperties": False}
    if isinstance(pattern := names.get("pattern"), str):
        return {**rest, "patternProperties": {pattern: value}, "additionalProperties": False}
    return schema
