"""Grammars in Lark's notation as llguidance reads it, put together from texts, schemas and rules.

Control tokens are no text to it: they stand by their numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.api.parsers.tools.syntax.json_rules import TERMINALS, Inexpressible, JsonRules
from mlcc.api.schema.json_grammar import SETTINGS, prepared


class Lark:
    """One grammar. control: control tokens, by their texts."""

    def __init__(self, control: Mapping[str, int] | None = None) -> None:
        self._control = control or {}
        self._rules: list[str] = []
        self._names: dict[str, str] = {}
        """Names of rules, by their attributes and expressions."""
        self._has_json = False
        """Whether a rule uses those of JSON."""
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
        """Add a rule, unless there is one of this expression; returns its name."""
        known = f"{attributes}: {expression}"
        if known not in self._names:
            self._names[known] = name = f"r{len(self._rules)}"
            self._rules.append(name + known)
        return self._names[known]

    def terminal(self, expression: str) -> str:
        """Add a terminal; returns its name."""
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {expression}")
        return name

    def later(self) -> str:
        """The name of a rule that is added by `define`."""
        self._rules.append("")
        return f"r{len(self._rules) - 1}"

    def define(self, name: str, expression: str) -> None:
        """Add the rule of a name from `later`."""
        self._rules[int(name[1:])] = f"{name}: {expression}"

    def json(self, schema: Mapping[str, Any]) -> str:
        """An expression that matches JSON of a schema."""
        rules, names, ready = [*self._rules], {**self._names}, prepared(schema)
        try:
            found = JsonRules(ready, self).value(ready)
        except Inexpressible:
            self._rules, self._names = rules, names
            return self.python_json(schema)
        self._has_json = True
        return found

    def python_json(self, schema: Mapping[str, Any]) -> str:
        """An expression that matches JSON that Python reads as the same: without `\\/`."""
        options = {"x-guidance": SETTINGS}
        return self.rule("%json " + json.dumps({**prepared(schema), **options}))

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
        return "\n".join([*head, *self._rules, TERMINALS if self._has_json else ""]) + "\n"


def literal(text: str) -> str:
    """A text as a Lark literal."""
    return json.dumps(text, ensure_ascii=False) if text else '""'
