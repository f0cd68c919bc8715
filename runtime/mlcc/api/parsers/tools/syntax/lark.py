"""Grammars in Lark's notation as llguidance reads it, put together from texts, schemas and rules.

Control tokens are no text to it: they stand by their numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.schema.json_grammar import SETTINGS, prepared


class Lark:
    """One grammar. control: control tokens, by their texts."""

    def __init__(self, control: Mapping[str, int] | None = None) -> None:
        self._control = control or {}
        self._rules: list[str] = []
        marks = sorted(self._control, key=len, reverse=True)
        self._marks = re.compile(f"({'|'.join(map(re.escape, marks))})") if marks else None

    def is_control(self, text: str) -> bool:
        """Whether the text is a control token."""
        return text in self._control

    def text(self, text: str) -> str:
        """An expression that matches a text, control tokens included."""
        parts = self._marks.split(text) if self._marks else [text]
        return " ".join(
            f"<[{self._control[part]}]>" if part in self._control else literal(part)
            for part in parts
            if part
        )

    def rule(self, expression: str, attributes: str = "") -> str:
        """Add a rule; returns its name."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{attributes}: {expression}")
        return name

    def json(self, schema: Mapping[str, Any]) -> str:
        """An expression that matches JSON of a schema."""
        return self.rule("%json " + json.dumps({**prepared(schema), "x-guidance": SETTINGS}))

    def until(self, end: str) -> str:
        """An expression that matches any text up to and including the first `end`."""
        if self.is_control(end):
            return f"TEXT {self.text(end)}"
        return self.rule(f"TEXT {literal(end)}", "[lazy]")

    def chain(self, items: Sequence[tuple[str, bool]], separator: str) -> str:
        """Expressions in order, required (true) or optional, with a separator between those that
        occur."""
        between = f"{self.text(separator)} " if separator else ""
        rest = ""
        starts: list[str] = []
        for item, needed in reversed(items):
            starts = [f"{item} {rest}"] if needed else [f"{item} {rest}", *starts]
            more = f"{between}{item}"
            rest = f"{more} {rest}" if needed else f"({more})? {rest}"
        if not starts:
            return '""'
        optional = "" if any(needed for _, needed in items) else "?"
        return f"({' | '.join(starts)}){optional}"

    def written(self, start: str) -> str:
        """The whole grammar."""
        head = ["%llguidance {}", f"start: {start}", r"TEXT: /(.|\n)*/"]
        return "\n".join([*head, *self._rules]) + "\n"


def literal(text: str) -> str:
    """A text as a Lark literal."""
    return json.dumps(text, ensure_ascii=False) if text else '""'
