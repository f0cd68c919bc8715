"""GLM-4-0414's notation: a tool's name, a line end and a JSON object, nothing else; one call per
answer. There is no mark: an answer is a call if its first line is a tool's name.

Source: Zhipu AI's model cards of GLM-4-0414 and GLM-Z1. GLM-4.5 and later differ (`glm.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Call, Tools
from mlcc.api.parsers.tools.syntax.json_text import json_end, parsed, written
from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Glm4:
    """GLM-4-0414 and GLM-Z1."""

    name: str = "glm4"
    opens: tuple[str, ...] = ("",)
    """Every answer may be a call."""
    control: tuple[str, ...] = ()
    first: bool = True
    json_arguments: bool = True
    trigger: str = ""
    between: str = ""
    after: str = ""

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        head = lark.text(f"{name}\n")
        return f"{head} {lark.json(parameters)}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """One call, or the answer as soon as its first line is not a tool's name."""
        stripped = text.lstrip()
        line, line_end, rest = stripped.partition("\n")
        name, rest = line.strip(), rest.lstrip()
        if not line_end:
            may_be = name in tools or any(known.startswith(stripped) for known in tools)
            return None if may_be and not ended else Block(len(text))
        if name not in tools or (rest and rest[0] != "{"):
            return Block(len(text))
        end = json_end(rest) if rest else None
        if end is None:
            return Block(len(text)) if ended else None
        given = parsed(rest[:end])
        calls = (Call(name, written(given)),) if isinstance(given, dict) else ()
        return Block(len(text) - len(rest) + end, calls)


GLM4 = Glm4()
