"""JSON Schemas as grammars: llguidance's options, and schemas in a form in which it never leads an
answer to a dead end. `mlcc.model.structured_output` and the grammars of tool calls use both.

An expression of `patternProperties` that matches a few names only becomes those properties: after
`, ` llguidance needs a name that is not taken yet. `oneOf` of schemas without a common value is
`anyOf`. `minProperties` and `maxProperties` of a closed object become a choice of the sets of
properties that it may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser

from mlcc.api.schema.json_disjoint import Target, are_disjoint
from mlcc.api.schema.json_references import (
    NAMED,
    ONE,
    SEVERAL,
    target_of,
    uri_of,
    with_definitions,
)

WHITESPACE = r" |\n[ \t]{0,32}"
"""White space between the parts of JSON: a space, or a new line with its indent. A model that may
write any number of spaces sometimes writes nothing else."""
SETTINGS = {
    "whitespace_pattern": WHITESPACE,
    "lenient": False,
    "coerce_one_of": False,
    "json_allow_general_unicode_escapes": True,
}
"""llguidance's options for schemas. Not lenient: an unsupported keyword is an error."""
MOST_NAMES = 64
"""Most names of one expression that become properties."""
MOST_SETS = 128
"""Most sets of properties among which an object chooses."""
_COUNTS = ("minProperties", "maxProperties")
_LENGTHS = frozenset({"minLength", "maxLength", "minItems", "maxItems", *_COUNTS})
_BEGIN, _END = "\ue000", "\ue001"
"""The anchors `^` and `$` in the texts of `_texts`."""


def prepared(schema: Any) -> Any:
    """The schema in this form; it allows the same values."""
    root = with_definitions(schema)[0]
    return _prepared(root, partial(target_of, root))


def _prepared(schema: Any, target: Target) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = {word: _inside(word, value, target) for word, value in schema.items()}
    if are_disjoint(made.get("oneOf"), target):
        add_any_of(made, made.pop("oneOf"))
    if isinstance(ref := made.get("$ref"), str):
        made["$ref"] = uri_of(ref)
    for word in _LENGTHS & made.keys():
        made[word] = whole(made[word])
    return _with_sets(_with_names(made))


def _inside(word: str, value: Any, target: Target) -> Any:
    """The value of a keyword, with its schemas prepared."""
    if word in NAMED and isinstance(value, dict):
        return {name: _prepared(inner, target) for name, inner in value.items()}
    if (word in SEVERAL or word == "items") and isinstance(value, list):
        return [_prepared(inner, target) for inner in value]
    return _prepared(value, target) if word in ONE else value


def whole(value: Any) -> Any:
    """A count as an integer: by JSON Schema 2020-12 (4.2.3) 10.0 is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def add_any_of(schema: dict[str, Any], choices: Any) -> None:
    """Add `anyOf` to a schema, which may have one."""
    if "anyOf" in schema:
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": choices}]
    else:
        schema["anyOf"] = choices


def _with_names(schema: dict[str, Any]) -> dict[str, Any]:
    """Expressions that match a few names only become properties."""
    patterns, properties = schema.get("patternProperties"), schema.get("properties", {})
    if not isinstance(patterns, dict) or not isinstance(properties, dict):
        return schema
    if any(value is False and _is_every(pattern) for pattern, value in patterns.items()):
        nothing = {"properties": dict.fromkeys(properties, False), "additionalProperties": False}
        return {**{w: v for w, v in schema.items() if w != "patternProperties"}, **nothing}
    properties, left = {**properties}, {}
    for pattern, value in patterns.items():
        if (names := matched_names(pattern)) is None:
            left[pattern] = value
            continue
        for name in names:
            properties[name] = both(properties.get(name, True), value)
    if len(left) == len(patterns):
        return schema
    rest = {word: value for word, value in schema.items() if word != "patternProperties"}
    return {**rest, "properties": properties, **({"patternProperties": left} if left else {})}


def _is_every(pattern: str) -> bool:
    """Whether an expression is one of the usual ones that match any text."""
    return pattern != "^$" and re.fullmatch(r"\^?(\.\*|\(\.\*\))?\$?", pattern) is not None


def both(one: Any, other: Any) -> Any:
    """A schema of the values that both allow."""
    if one in (True, {}) or other is False or one == other:
        return other
    return one if other in (True, {}) or one is False else {"allOf": [one, other]}


def _with_sets(schema: dict[str, Any]) -> dict[str, Any]:
    """A closed object with a number of properties chooses among sets of them."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    alone = not {"anyOf", "oneOf", "allOf", "$ref", "patternProperties"} & schema.keys()
    closed = schema.get("type") == "object" and schema.get("additionalProperties") is False
    counted = any(isinstance(schema.get(word), int) for word in _COUNTS)
    if not (alone and closed and counted and isinstance(properties, dict)):
        return schema
    possible = {name: value for name, value in properties.items() if value is not False}
    optional = [name for name in possible if name not in required]
    if not set(required) <= possible.keys() or not optional:
        return schema  # llguidance counts these, and says what cannot be met
    least = schema.get("minProperties", 0) - len(required)
    most = min(schema.get("maxProperties", len(possible)) - len(required), len(optional))
    if 2 ** len(optional) > MOST_SETS:
        return schema
    sets = [
        _with_only(possible, {*required, *some})
        for count in range(max(least, 0), most + 1)
        for some in combinations(optional, count)
    ]
    if not sets:  # refused by llguidance, which says why
        return {**schema, "required": [*possible]}
    gone = {"type", "properties", "required", "additionalProperties", *_COUNTS}
    rest = {word: value for word, value in schema.items() if word not in gone}
    return {**rest, "anyOf": sets}


def _with_only(properties: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The object that has exactly these properties."""
    wanted = {name: value for name, value in properties.items() if name in names}
    return {
        "type": "object",
        "properties": wanted,
        "required": [*wanted],
        "additionalProperties": False,
    }


def matched_names(pattern: str) -> list[str] | None:
    """The texts that an expression matches, if there are few; None = many, or unknown."""
    try:
        parsed = _parser.parse(pattern)
        if parsed.state.flags & ~re.UNICODE:
            return None
        texts = _texts(parsed)
    except (re.error, RecursionError, OverflowError):
        return None
    if texts is None or any(not _is_whole(text) for text in texts):
        return None
    return sorted({text[1:-1] for text in texts})


def _is_whole(text: str) -> bool:
    """Whether a text of `_texts` is anchored at both ends, and nowhere else."""
    inside = text[1:-1]
    anchored = text[:1] == _BEGIN and text[1:][-1:] == _END
    return anchored and _BEGIN not in inside and _END not in inside


def _texts(parts: Any) -> list[str] | None:
    """The texts of a parsed expression, with its anchors; None = many, or unknown."""
    found = [""]
    for kind, value in parts:
        next_texts = _texts_of(str(kind), value)
        if next_texts is None or len(found) * len(next_texts) > MOST_NAMES:
            return None
        found = [before + text for before in found for text in next_texts]
    return found


def _texts_of(kind: str, value: Any) -> list[str] | None:
    if kind == "LITERAL":
        return [chr(value)]
    if kind == "AT":
        return {"AT_BEGINNING": [_BEGIN], "AT_END": [_END]}.get(str(value))
    if kind == "IN":
        return _characters(value)
    if kind == "SUBPATTERN":
        _, added, removed, inner = value
        return None if added or removed else _texts(inner)
    if kind == "BRANCH":
        return _joined(_texts(branch) for branch in value[1])
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inner = value
        if most > MOST_NAMES:
            return None
        return _joined(_texts([*inner] * count) for count in range(least, most + 1))
    return None


def _characters(entries: Any) -> list[str] | None:
    """The characters of a class."""
    found: list[str] = []
    for kind, value in entries:
        if str(kind) == "LITERAL":
            found.append(chr(value))
        elif str(kind) == "RANGE" and value[1] - value[0] < MOST_NAMES:
            found += map(chr, range(value[0], value[1] + 1))
        elif str(kind) == "CATEGORY" and str(value) == "CATEGORY_DIGIT":
            found += "0123456789"
        else:
            return None
    return found


def _joined(lists: Iterable[list[str] | None]) -> list[str] | None:
    found: list[str] = []
    for texts in lists:
        if texts is None or len(found) + len(texts) > MOST_NAMES:
            return None
        found += texts
    return found
