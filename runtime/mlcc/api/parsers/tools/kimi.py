"""Kimi K2's notation: a section of calls, each `functions.name:0`, a mark and JSON. The model
numbers its calls through a conversation, and its template writes a call's id in place of the tool's
name: so that text is kept as the call's id.

Source: Moonshot AI's guide to tool calling with Kimi K2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Tools
from mlcc.api.parsers.tools.sectioned import Section
from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.util.fast_dataclass import fast_dataclass

BEGIN, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENT = "<|tool_call_argument_begin|>"
_ID = r"(?P<id>(?:functions\.)?(?P<name>[\w./-]{1,128})(?::\d{1,6})?)"
_SECTION = Section(
    BEGIN,
    re.compile(rf"\s*{re.escape(CALL)}\s*{_ID}\s*{re.escape(ARGUMENT)}\s*(?=\{{)"),
    re.compile(rf"\s*{re.escape(CALL_END)}"),
    re.compile(rf"\s*{re.escape(END)}"),
)


@fast_dataclass(frozen=True)
class Kimi:
    """Kimi K2."""

    name: str = "kimi"
    opens: tuple[str, ...] = (BEGIN,)
    control: tuple[str, ...] = (BEGIN, END, CALL, CALL_END, ARGUMENT)
    first: bool = False
    json_arguments: bool = True
    trigger: str = BEGIN
    between: str = CALL_END
    after: str = f"{CALL_END}{END}"

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        number = lark.rule("/[0-9]{1,3}/")
        head = f"{lark.text(f'{CALL}functions.{name}:')} {number} {lark.text(ARGUMENT)}"
        return f"{head} {lark.json(parameters)}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """All calls, up to the closing mark or the end of the answer."""
        return _SECTION.block(text, ended)


KIMI = Kimi()
