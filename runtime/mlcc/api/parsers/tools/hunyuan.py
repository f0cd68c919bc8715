"""HunYuan's notation: between two marks, calls of a name and JSON in a Markdown fence, each between
marks of its own, as in DeepSeek V3 with other marks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcc.api.parsers.tools.base import Block, Tools
from mlcc.api.parsers.tools.sectioned import Section
from mlcc.api.parsers.tools.syntax.lark import Lark

BEGIN, END = "<tool_calls>", "</tool_calls>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
_HEAD = re.compile(rf"\s*{CALL}\s*([\w.:/-]{{1,128}})\s*(?:```json)?\s*(?=\{{)")
_TAIL = re.compile(rf"\s*(?:```)?\s*{CALL_END}")
_SECTION = Section(BEGIN, _HEAD, _TAIL, re.compile(rf"\s*{END}"))


@dataclass(frozen=True)
class HunYuan:
    """HunYuan's only notation."""

    name: str = "hunyuan"
    opens: tuple[str, ...] = (BEGIN,)
    control: tuple[str, ...] = (BEGIN, END, CALL, CALL_END)
    first: bool = False
    json_arguments: bool = True
    trigger: str = BEGIN
    between: str = f"\n```{CALL_END}\n"
    after: str = f"\n```{CALL_END}{END}"

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        head = f"{CALL}{name}\n```json\n"
        return f"{lark.text(head)} {lark.json(parameters)}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """All calls, up to the closing mark or the end of the answer."""
        return _SECTION.block(text, ended)


HUNYUAN = HunYuan()
