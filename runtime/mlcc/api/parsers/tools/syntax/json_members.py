"""The members that an object's schema allows: named ones, and classes of other names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from mlcc.api.parsers.tools.syntax.json_patterns import json_pattern
from mlcc.api.schema.json_grammar import both
from mlcc.util.fast_dataclass import fast_dataclass

MOST_PATTERNS = 3
"""Most expressions of `patternProperties`, of which a name may match any set."""


@fast_dataclass(frozen=True)
class Members:
    """The members of an object. Expressions are over JSON's text (`json_pattern`)."""

    named: Mapping[str, Any]
    """Names with a schema of their own; false = not allowed."""
    required: frozenset[str]
    patterns: Sequence[tuple[str, Any]]
    """Expressions of other names, with the schemas of their values."""
    other: Any
    """The schema of names that no expression matches."""

    def classes(self) -> Iterator[tuple[list[str], list[str], Any]]:
        """Disjoint classes of other names: expressions that match, and that do not, and the schema
        of the values."""
        for chosen in product((True, False), repeat=len(self.patterns)):
            matched = [p for p, yes in zip(self.patterns, chosen, strict=True) if yes]
            others = [p for p, yes in zip(self.patterns, chosen, strict=True) if not yes]
            inner: Any = True if matched else self.other
            for _, value in matched:
                inner = both(inner, value)
            yield [text for text, _ in matched], [text for text, _ in others], inner


def members_of(words: Mapping[str, Any]) -> Members | None:
    """The members by an object's keywords; None = they are left to llguidance."""
    properties, required = words.get("properties", {}), words.get("required", [])
    patterns, other = words.get("patternProperties", {}), words.get("additionalProperties", True)
    good = isinstance(properties, dict) and isinstance(required, list)
    if not good or not isinstance(patterns, dict) or len(patterns) > MOST_PATTERNS:
        return None
    if not all(isinstance(name, str) for name in required):
        return None
    texts = {pattern: json_pattern(pattern) for pattern in patterns}
    named: dict[str, Any] = {}
    for name in dict.fromkeys([*properties, *required]):
        if patterns and not (name.isascii() and name.isprintable()):
            return None  # Python's expressions and ECMA's may differ
        matched = [p for p, text in texts.items() if text and re.search(p, name, re.ASCII)]
        inner = properties.get(name, True if matched else other)
        for pattern in matched:
            inner = both(inner, patterns[pattern])
        if inner is False and name in required:
            return None  # llguidance says why
        named[name] = inner
    known = [(text, patterns[pattern]) for pattern, text in texts.items() if text is not None]
    if len(known) < len(patterns):
        return None
    return Members(named, frozenset(required), known, other)
