"""Calls as plain JSON: an answer that is `{"name": ..., "arguments": {...}}`, several of them, or
an array. Models without tools in their template are prompted for it (`prompted.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Tools
from mlcc.api.parsers.tools.syntax.json_text import ARGUMENTS, NAMES, calls_of, json_end, parsed
from mlcc.api.parsers.tools.syntax.lark import Lark, literal
from mlcc.util.fast_dataclass import fast_dataclass

_FENCE = "```json"
_KEYS = (*NAMES, *ARGUMENTS, "type", "id")
_START = re.compile(r'(?:\[\s*)?\{\s*"([^"\\]*)"')


@fast_dataclass(frozen=True)
class PlainJson:
    """JSON at the start of an answer, plain or in a Markdown fence."""

    name: str = "json"
    opens: tuple[str, ...] = ("{", "[", _FENCE)
    control: tuple[str, ...] = ()
    first: bool = True
    json_arguments: bool = True
    trigger: str = '{"name": '
    between: str = '\n{"name": '
    after: str = ""
    key: str = "arguments"
    """Key of the arguments in the prompt and the grammar."""

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        head = lark.text(f'{literal(name)}, "{self.key}": ')
        return f"{head} {lark.json(parameters)} {literal('}')}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """One object or array. It is a call if it names a known tool; other JSON is an answer, and
        is passed on as soon as its first key shows that."""
        front = len(_FENCE) if text.startswith(_FENCE) else 0
        start = len(text) - len(text[front:].lstrip())
        if (found := _START.match(text, start)) and found[1] not in _KEYS:
            return Block(found.end())
        end = json_end(text, start) if text[start:][:1] in ("{", "[") else None
        if end is None:
            wrong = start < len(text) and text[start] not in "{["
            return Block(len(text)) if ended else Block(start) if wrong else None
        calls = calls_of(parsed(text[start:end]))
        if not calls or any(call.name not in tools for call in calls):
            return Block(end)
        if not front:
            return Block(end, calls)
        tail = text[end:].lstrip()
        if tail.startswith("```"):
            return Block(len(text) - len(tail) + 3, calls)
        return None if "```".startswith(tail) and not ended else Block(end, calls)


PLAIN_JSON = PlainJson()
