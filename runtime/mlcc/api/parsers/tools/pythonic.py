"""Calls as a Python list at the start of an answer, `[f(a=1), g()]`: Llama 3.2 and 4, and other
models trained on it; Llama 4 puts marks around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Tools
from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.api.parsers.tools.syntax.python_text import python_body, python_calls, python_end
from mlcc.util.fast_dataclass import fast_dataclass

_OPEN, _CLOSE = "<|python_start|>", "<|python_end|>"


@fast_dataclass(frozen=True)
class Pythonic:
    """Python calls in a list, with or without control tokens around it."""

    name: str = "pythonic"
    opens: tuple[str, ...] = (_OPEN, "[")
    control: tuple[str, ...] = (_OPEN, _CLOSE)
    first: bool = True
    json_arguments: bool = False
    trigger: str = "["
    between: str = ", "
    after: str = "]"

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        return python_body(name, parameters, lark)

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """A list of calls. Without marks, a call of an unknown tool is text."""
        marked = text.startswith(_OPEN)
        front = len(_OPEN) if marked else 0
        start = len(text) - len(text[front:].lstrip())
        if start == len(text):
            return Block(len(text)) if ended else None
        if text[start] != "[":
            return Block(start)
        end = python_end(text, start)
        if end is None:
            return Block(len(text)) if ended else None
        calls = python_calls(text[start:end], tools)
        if not calls or not (marked or all(call.name in tools for call in calls)):
            return Block(end)
        if not marked:
            return Block(end, calls)
        tail = text[end:].lstrip()
        if tail.startswith(_CLOSE):
            return Block(len(text) - len(tail) + len(_CLOSE), calls)
        return None if _CLOSE.startswith(tail) and not ended else Block(end, calls)


PYTHONIC = Pythonic()
