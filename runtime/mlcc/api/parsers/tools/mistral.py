"""Mistral's notations: `[TOOL_CALLS][{"name": ..., "arguments": {...}}]` up to 2024, later
`[TOOL_CALLS]name[ARGS]{...}` for each call, sometimes with `[CALL_ID]` or without `[ARGS]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Call, Tools
from mlcc.api.parsers.tools.syntax.json_text import calls_of, json_end, parsed, written
from mlcc.api.parsers.tools.syntax.lark import Lark, literal
from mlcc.util.fast_dataclass import fast_dataclass

_OPEN, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_HEAD = re.compile(r"\s*([\w.:/-]{1,128})\s*(?:\[CALL_ID\]\s*\w*\s*)?(?:\[ARGS\])?\s*(?=\{)")
_LONGEST_HEAD = 256


@fast_dataclass(frozen=True)
class Mistral:
    """Parses all; `array` selects the notation of the grammar."""

    name: str
    array: bool
    opens: tuple[str, ...] = (_OPEN,)
    control: tuple[str, ...] = (_OPEN, _ARGS, _ID)
    first: bool = False
    json_arguments: bool = True

    @property
    def trigger(self) -> str:
        return f"{_OPEN}[" if self.array else _OPEN

    @property
    def between(self) -> str:
        return ", " if self.array else _OPEN

    @property
    def after(self) -> str:
        return "]" if self.array else ""

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        if not self.array:
            return f"{lark.text(name + _ARGS)} {lark.json(parameters)}"
        head = lark.text(f'{{"name": {literal(name)}, "arguments": ')
        return f"{head} {lark.json(parameters)} {literal('}')}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """The calls after one mark."""
        front = len(_OPEN)
        start = len(text) - len(text[front:].lstrip())
        if start == len(text):
            return Block(len(text)) if ended else None
        if text[start] in "[{":
            end = json_end(text, start)
            if end is None:
                return Block(len(text)) if ended else None
            return Block(end, calls_of(parsed(text[start:end])))
        if not (head := _HEAD.match(text, front)):
            brace = text.find("{", front, front + _LONGEST_HEAD)
            if brace < 0 and len(text) - front < _LONGEST_HEAD and not ended:
                return None
            return Block(front)
        end = json_end(text, head.end())
        if end is None:
            return Block(len(text)) if ended else None
        given = parsed(text[head.end() : end])
        calls = (Call(head[1], written(given)),) if isinstance(given, dict) else ()
        return Block(end, calls)


MISTRAL = Mistral("mistral", array=False)
MISTRAL_ARRAY = Mistral("mistral-array", array=True)
