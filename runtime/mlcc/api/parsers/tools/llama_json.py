"""Llama 3.x: an answer that is `{"name": ..., "parameters": {...}}`, several with `;` between, and
its built-in tools after `<|python_tag|>`, as JSON or as `brave_search.call(query="...")`. Llama 4
is prompted for the same, and sometimes writes a Python list instead (`pythonic.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Tools
from mlcc.api.parsers.tools.plain_json import PlainJson
from mlcc.api.parsers.tools.pythonic import PYTHONIC
from mlcc.api.parsers.tools.syntax.json_text import calls_of, json_end, parsed
from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.api.parsers.tools.syntax.python_text import python_calls, python_end
from mlcc.util.fast_dataclass import fast_dataclass

_TAG = "<|python_tag|>"
_PLAIN = PlainJson(key="parameters")


@fast_dataclass(frozen=True)
class LlamaJson:
    """Llama's two forms of calls: JSON and Pythonic."""

    name: str = "llama"
    opens: tuple[str, ...] = (_TAG, "{", *PYTHONIC.opens)
    control: tuple[str, ...] = (_TAG, *PYTHONIC.control)
    first: bool = True
    json_arguments: bool = True
    trigger: str = '{"name": '
    between: str = '; {"name": '
    after: str = ""

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        return _PLAIN.body(name, parameters, lark)

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """One call."""
        if text.startswith(PYTHONIC.opens):
            inside = text.lstrip("[ \t\r\n")
            if not text.startswith("[") or (inside and inside[0] != "{"):
                return PYTHONIC.block(text, ended, tools)
        if not text.startswith(_TAG):
            return _PLAIN.block(text, ended, tools)
        start = len(text) - len(text[len(_TAG) :].lstrip())
        if start == len(text):
            return Block(len(text)) if ended else None
        if text[start] in "{[":
            end = json_end(text, start)
            calls = () if end is None else calls_of(parsed(text[start:end]))
        else:
            end = python_end(text, start)
            calls = () if end is None else python_calls(text[start:end], tools)
        if end is None:
            return Block(len(text)) if ended else None
        return Block(end, calls)


LLAMA_JSON = LlamaJson()
