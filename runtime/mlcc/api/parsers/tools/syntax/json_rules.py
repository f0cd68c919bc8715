"""JSON Schemas as rules of a Lark grammar, for the schemas that most requests have.

llguidance's own grammar of a schema allows fewer strings than JSON has: no `\\/`, and in strings
with an expression it lets a `\\u` begin that only a control character can end. Here a string may
hold what RFC 8259 allows, except half of a pair of surrogates, which is no character. What these
rules do not express (expressions, bounds of numbers, `oneOf`, ...) is a part that llguidance reads
as a schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from mlcc.api.parsers.tools.syntax.json_members import Members, members_of
from mlcc.api.parsers.tools.syntax.json_merge import (
    ANNOTATIONS,
    has_open_names,
    object_choices,
)
from mlcc.api.parsers.tools.syntax.json_patterns import has_one_spelling, json_pattern, spelled
from mlcc.api.schema.json_grammar import SETTINGS, WHITESPACE
from mlcc.api.schema.json_references import DEFINITIONS, steps_of, target_of


class Rules(Protocol):
    """The grammar to which rules are added."""

    def rule(self, expression: str) -> str:
        """Add a rule; returns its name."""
        ...

    def terminal(self, expression: str) -> str:
        """Add a terminal; returns its name."""
        ...

    def later(self) -> str:
        """The name of a rule that is added by `define`."""
        ...

    def define(self, name: str, expression: str) -> None:
        """Add the rule of a name from `later`."""
        ...


_HEX = "[0-9a-fA-F]"
_BEYOND_ASCII = (
    rf"00[0189a-fA-F]{_HEX}|007[fF]|0[1-9a-fA-F]{_HEX}{{2}}"
    rf"|[1-9a-cefA-CEF]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}"
    rf"|[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
)
"""Numbers of characters but those of printable ASCII."""
_ASCII = rf"00[2-6]{_HEX}|007[0-9a-eA-E]"
_CHARACTER = rf'([^"\\\x00-\x1F]|\\["\\\/bfnrt]|\\u({_ASCII}|{_BEYOND_ASCII}))'
_OF_NAMES = rf'([^"\\\x00-\x1F]|\\["\\\/bfnrt]|\\u({_BEYOND_ASCII}))'
"""Characters of strings, and of names beside those of a schema."""
_INTEGER = "-?(0|[1-9][0-9]*)"
_NUMBER = rf"{_INTEGER}(\.[0-9]+)?([eE][+-]?[0-9]+)?"
TERMINALS = f"""JWS: /{WHITESPACE}/
JSTRING: /"{_CHARACTER}*"/
JINT: /{_INTEGER}/
JNUM: /{_NUMBER}/
jsep: JWS? "," JWS?
jcolon: JWS? ":" JWS?
jpair: JSTRING jcolon jany
jobject: "{{" JWS? (jpair (jsep jpair)*)? JWS? "}}"
jarray: "[" JWS? (jany (jsep jany)*)? JWS? "]"
jany: jobject | jarray | JSTRING | JNUM | "true" | "false" | "null"
"""
"""Terminals and rules that the others use."""
NO_UNICODE = {**SETTINGS, "json_allowed_escapes": 'nrbtf\\"'}
NO_UNICODE.pop("json_allow_general_unicode_escapes")
"""Settings of strings with an expression, in which llguidance would cut escapes short, and of
objects of which it takes a name in another spelling for another name."""
_OF_TYPE: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
    | {"multipleOf"},
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "additionalItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "patternProperties"})
    | {"minProperties", "maxProperties"},
}
"""Keywords that constrain one type."""
_PLAIN = {"boolean": '("true" | "false")', "null": '"null"', "integer": "JINT", "number": "JNUM"}
_NAMES: Mapping[type, str] = {str: "string", list: "array", dict: "object"}
LONGEST_STRING = 1000
"""Largest bound of a string's length that is a rule; llguidance reads the others."""
MOST_PROPERTIES = 256
"""Most properties of an object that are rules, and most items that are counted."""
MOST_ITEMS = 64


class Inexpressible(Exception):
    """The whole schema must be read by llguidance."""


class JsonRules:
    """The rules of one schema, in a grammar that has TERMINALS too."""

    def __init__(self, root: Any, rules: Rules) -> None:
        self._rules, self._add = rules, rules.rule
        self._root = root
        self._defs = {
            word: root[word] for word in DEFINITIONS if isinstance(root, dict) and word in root
        }
        self._targets: dict[str, str] = {}
        """Names of the rules of `$ref`s."""

    def value(self, schema: Any) -> str:
        """An expression that matches the values of a schema. Raises Inexpressible."""
        if schema is True:
            return "jany"
        if not isinstance(schema, dict):
            raise Inexpressible
        words = {word: value for word, value in schema.items() if word not in ANNOTATIONS}
        if "$id" in words and schema is not self._root:  # references in it are to itself
            raise Inexpressible
        words.pop("$id", None)
        if not words:
            return "jany"
        if words.keys() == {"$ref"}:
            return self._target(words["$ref"])
        if words.keys() == {"anyOf"} and isinstance(words["anyOf"], list) and words["anyOf"]:
            return self._add(" | ".join(map(self.value, words["anyOf"])))
        if "enum" in words or "const" in words:
            return self._choice(words)
        if choices := object_choices(words, self._definition):
            return self._add(" | ".join(map(self.value, choices)))
        kind = words.pop("type", None)
        if isinstance(kind, list) and kind and all(isinstance(one, str) for one in kind):
            return self._add(" | ".join(self._typed(one, _for(one, words)) for one in kind))
        return self._typed(kind, words)

    def _typed(self, kind: Any, words: dict[str, Any]) -> str:
        """Values of one type."""
        if not words and kind in _PLAIN:
            return _PLAIN[kind]
        if kind == "string" and words.keys() <= {"minLength", "maxLength", "pattern"}:
            return self._string(words)
        if kind == "array" and words.keys() <= {"items", "prefixItems", "minItems", "maxItems"}:
            return self._array(words)
        if kind == "object" and words.keys() <= _OF_TYPE["object"]:
            return self._object(words)
        if kind is None and words.keys() <= _OF_TYPE["object"]:
            others = '"true" | "false" | "null" | JNUM | JSTRING | jarray'
            return self._add(f"{others} | {self._object(words)}")
        return self._part({**words, **({"type": kind} if kind is not None else {})})

    def _part(self, schema: dict[str, Any]) -> str:
        """A part that llguidance reads."""
        text = json.dumps(schema)
        refs = re.findall(r'"\$ref": "([^"]*)"', text)
        if not all(ref.startswith(("#/$defs/", "#/definitions/")) for ref in refs):
            raise Inexpressible
        if '"$id"' in text and refs:
            raise Inexpressible
        text_only = schema.get("type") == "string" and not refs
        defs = self._defs if refs else {}
        named = has_open_names({**schema, **defs})  # no spelling of a name must go round its schema
        options = NO_UNICODE if text_only or named else SETTINGS
        return self._add("%json " + json.dumps({**schema, **defs, "x-guidance": options}))

    def _target(self, ref: Any) -> str:
        if not isinstance(ref, str):
            raise Inexpressible
        if ref not in self._targets:
            if (target := self._definition(ref)) is None:
                raise Inexpressible
            self._targets[ref] = name = self._rules.later()
            self._rules.define(name, self.value(target))
        return self._targets[ref]

    def _definition(self, ref: Any) -> Any:
        """The schema of a `$ref`, without annotations; None = it is no definition."""
        steps, target = steps_of(ref), target_of(self._defs, ref)
        if not steps or len(steps) != 2:
            return None
        if not isinstance(target, dict):
            return target
        return {word: value for word, value in target.items() if word not in ANNOTATIONS}

    def _choice(self, words: dict[str, Any]) -> str:
        values = words["enum"] if "enum" in words else [words["const"]]
        known = words.keys() <= {"enum", "type"} or words.keys() <= {"const", "type"}
        if not isinstance(values, list) or not known:
            return self._part(words)
        allowed = [value for value in values if _is_of(value, words.get("type"))]
        texts = dict.fromkeys(value for value in allowed if isinstance(value, str))
        if not texts:
            return self._part(words)
        several = [value for value in texts if not has_one_spelling(value)]
        ways = [_literal(_written(value)) for value in texts if value not in several]
        ways += [self._spelled(several)] if several else []
        others = [value for value in allowed if not isinstance(value, str)]
        return self._add(" | ".join([*ways, *([self._part({"enum": others})] if others else [])]))

    def _spelled(self, texts: Iterable[str]) -> str:
        """These strings in all their spellings."""
        return self._rules.terminal(f'/"({"|".join(map(spelled, texts))})"/')

    def _name(self, name: str) -> str:
        """The name of a property. Of one spelling it is a literal, whose tokens are forced."""
        return _literal(_written(name)) if has_one_spelling(name) else self._spelled([name])

    def _string(self, words: dict[str, Any]) -> str:
        least, most = words.get("minLength", 0), words.get("maxLength")
        if not words:
            return "JSTRING"
        good = all(_is_count(n) and n <= LONGEST_STRING for n in (least, most or 0))
        if not good or (most is not None and most < least):
            return self._part({"type": "string", **words})
        count = f"{{{least},{'' if most is None else most}}}"
        counted = f'/"{_CHARACTER}{count}"/'
        if "pattern" not in words:
            return self._add(counted)
        if (found := json_pattern(str(words["pattern"]))) is None:
            return self._part({"type": "string", **words})
        both = f" & {counted}" if len(words) > 1 else ""
        return self._rules.terminal(f'/"{found}"/{both}')

    def _array(self, words: dict[str, Any]) -> str:
        first, rest = words.get("prefixItems", []), words.get("items", True)
        least, most = words.get("minItems", 0), words.get("maxItems")
        good = isinstance(first, list) and len(first) <= MOST_ITEMS
        good = good and all(_is_count(n) and n <= MOST_ITEMS for n in (least, most or 0))
        if not good or isinstance(rest, list):
            return self._part({"type": "array", **words})
        if rest is False:
            most = len(first) if most is None else min(most, len(first))
        if most is not None and most < least:
            return self._part({"type": "array", **words})
        fixed = [*map(self.value, first if most is None else first[:most])]
        tail, more = "", len(fixed)
        if most is None or most > more:
            item = self.value(rest)
            if not fixed:
                return self._add(f'"[" JWS? {_several(item, least, most)} JWS? "]"')
            low, high = max(least - more, 0), "" if most is None else most - more
            tail = f"(jsep {item}){{{low},{high}}}"
        for number in reversed(range(1, more)):
            tail = f"jsep {fixed[number]} {tail}"
            tail = tail if number < least else f"({tail})?"
        inside = f"{fixed[0]} {tail}" if fixed else ""
        inside = inside if least or not inside else f"({inside})?"
        return self._add(f'"[" JWS? {inside} JWS? "]"')

    def _object(self, words: dict[str, Any]) -> str:
        if words.get("additionalProperties", True) is True and all(
            word == "additionalProperties" or words[word] in ({}, []) for word in words
        ):
            return "jobject"
        if (found := members_of(words)) is None or len(found.named) > MOST_PROPERTIES:
            return self._part({"type": "object", **words})
        pairs = [
            (f"{self._name(name)} jcolon {self.value(inner)}", name in found.required)
            for name, inner in found.named.items()
            if inner is not False
        ]
        loop = self._others(found)
        counts = words.get("minProperties", 0), words.get("maxProperties")
        inside = self._pairs(pairs, loop)
        if counts != (0, None):
            good = all(_is_count(n) and n <= MOST_ITEMS for n in (counts[0], counts[1] or 0))
            if not (good and loop and all(needed for _, needed in pairs)):
                return self._part({"type": "object", **words})
            inside = self._counted(pairs, loop, *counts)
        return self._add(f'"{{" JWS? {inside} JWS? "}}"')

    def _others(self, found: Members) -> str:
        """A pair of another name; "" = there is none. ASCII is not spelled by numbers there, so
        that each of these properties has the spellings of `spelled`."""
        names = "|".join(map(spelled, found.named))
        ways = []
        for matched, others, inner in found.classes():
            if inner is False:
                continue
            terms = [f'/"({one})"/' for one in matched] or ["JSTRING"]
            if found.named or matched or others:
                terms = [*terms[: len(matched)], f'/"{_OF_NAMES}*"/']
            terms += [f'~/"({names})"/'] if names else []
            terms += [f'~/"({one})"/' for one in others]
            key = " & ".join(terms)
            key = key if key == "JSTRING" else self._rules.terminal(key)
            ways.append(f"{key} jcolon {self.value(inner)}")
        return self._add(" | ".join(ways)) if ways else ""

    def _counted(
        self, pairs: Sequence[tuple[str, bool]], loop: str, least: int, most: int | None
    ) -> str:
        """Required pairs, then others: `least` to `most` in all."""
        fixed = len(pairs)
        if most is not None and most < max(least, fixed):
            raise Inexpressible  # llguidance says why
        low, high = max(least - fixed, 0), None if most is None else most - fixed
        if not fixed:
            return _several(loop, low, high)
        rest = f"(jsep {loop}){{{low},{'' if high is None else high}}}" if high != 0 else ""
        return " jsep ".join(pair for pair, _ in pairs) + f" {rest}"

    def _pairs(self, pairs: Sequence[tuple[str, bool]], loop: str) -> str:
        """Pairs in order, required (true) or optional, then any number of `loop`."""
        rest = f"(jsep {loop})*" if loop else ""
        begin = f"({loop} {rest})?" if loop else '""'
        for pair, needed in reversed(pairs):
            begin = f"{pair} {rest}" if needed else self._add(f"{pair} {rest} | {begin}")
            rest = f"jsep {pair} {rest}" if needed else f"(jsep {pair})? {rest}"
            if not needed:
                rest = self._add(rest)
        return begin


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a `type`, one or several; None = of any."""
    if kind is None:
        return True
    if isinstance(value, bool):
        own = {"boolean"}
    elif isinstance(value, (int, float)):
        whole = isinstance(value, int) or value.is_integer()
        own = {"number", "integer"} if whole else {"number"}
    else:
        own = {_NAMES.get(type(value), "null")}
    return not own.isdisjoint(kind if isinstance(kind, list) else [kind])


def _several(item: str, least: int, most: int | None) -> str:
    """Items with separators between them."""
    if most == 0:
        return ""
    low, high = max(least - 1, 0), "" if most is None else most - 1
    several = f"{item} (jsep {item}){{{low},{high}}}"
    return several if least else f"({several})?"


def _for(kind: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that matter to one of several types."""
    own = _OF_TYPE.get("number" if kind == "integer" else kind, frozenset())
    typed = frozenset().union(*_OF_TYPE.values())
    return {word: value for word, value in words.items() if word in own or word not in typed}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _written(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> str:
    """A text as a Lark literal."""
    return json.dumps(text, ensure_ascii=False)
