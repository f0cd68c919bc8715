"""Cohere's notation since Command R7B: `<|START_ACTION|>`, an array of `{"tool_call_id": "0",
"tool_name": ..., "parameters": {...}}`, `<|END_ACTION|>`.

Source: Cohere's model cards of Command R7B and Command A.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.hermes import TaggedJson
from mlcc.api.parsers.tools.syntax.lark import Lark, literal
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Cohere(TaggedJson):
    """JSON between marks, with numbered calls."""

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        number = lark.rule("/[0-9]{1,3}/")
        front, middle = (
            literal('{"tool_call_id": "'),
            f'", "tool_name": {literal(name)}, "parameters": ',
        )
        head = f"{front} {number} {literal(middle)}"
        return f"{head} {lark.json(parameters)} {literal('}')}"


COHERE = Cohere(
    "cohere",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    between=",\n    ",
    after="\n]<|END_ACTION|>",
    array="[\n    ",
)
