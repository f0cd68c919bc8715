"""DeepSeek's notation, in marks with full-width letters: V3 and R1 write a type, the name and JSON
in a Markdown fence, V3.1 the name and JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Tools
from mlcc.api.parsers.tools.sectioned import Section
from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.util.fast_dataclass import fast_dataclass

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEP = "<｜tool▁sep｜>"
_NAME = r"[\w.:/-]{1,128}"
_HEAD = re.compile(
    rf"\s*{CALL}\s*(?:function\s*{SEP}\s*({_NAME})\s*(?:```json)?|({_NAME})\s*{SEP})\s*(?=\{{)"
)
_TAIL = re.compile(rf"\s*(?:```)?\s*{CALL_END}")
_SECTION = Section(BEGIN, _HEAD, _TAIL, re.compile(rf"\s*{END}"))


@fast_dataclass(frozen=True)
class DeepSeek:
    """Parses both; `fenced` selects the notation of the grammar."""

    name: str
    fenced: bool
    opens: tuple[str, ...] = (BEGIN,)
    control: tuple[str, ...] = (BEGIN, END, CALL, CALL_END, SEP)
    first: bool = False
    json_arguments: bool = True
    trigger: str = BEGIN

    @property
    def between(self) -> str:
        return f"\n```{CALL_END}\n" if self.fenced else CALL_END

    @property
    def after(self) -> str:
        return f"\n```{CALL_END}{END}" if self.fenced else f"{CALL_END}{END}"

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        head = f"{CALL}function{SEP}{name}\n```json\n" if self.fenced else f"{CALL}{name}{SEP}"
        return f"{lark.text(head)} {lark.json(parameters)}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """All calls, up to the closing mark or the end of the answer."""
        return _SECTION.block(text, ended)


DEEPSEEK = DeepSeek("deepseek", fenced=True)
DEEPSEEK_V31 = DeepSeek("deepseek-v3.1", fenced=False)
