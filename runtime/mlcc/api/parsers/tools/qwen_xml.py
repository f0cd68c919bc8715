"""Qwen3-Coder's notation: `<tool_call><function=name><parameter=key>value</parameter></function>
</tool_call>`, with line ends between; values are unquoted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Call, Tools
from mlcc.api.parsers.tools.syntax.json_text import written
from mlcc.api.parsers.tools.syntax.lark import Lark, literal
from mlcc.api.parsers.tools.syntax.xml_text import body_of, value_of
from mlcc.util.fast_dataclass import fast_dataclass

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _END = "<function=", "</function>"
_NAME = re.compile(r"(?:<tool_call>)?\s*<function=([^>\n]{1,128})>")
_PARAMETER = re.compile(
    r"\s*<parameter=([^>\n]{1,256})>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL
)


@fast_dataclass(frozen=True)
class QwenXml:
    """Qwen3-Coder."""

    name: str = "qwen-xml"
    opens: tuple[str, ...] = (_OPEN, _FUNCTION)
    control: tuple[str, ...] = (_OPEN, _CLOSE)
    first: bool = False
    json_arguments: bool = False
    trigger: str = _OPEN
    between: str = "\n</function>\n</tool_call>\n<tool_call>"
    after: str = "\n</function>\n</tool_call>"

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        around = ("\n<parameter=", ">\n", "\n</parameter>")
        return f"{literal(f'{chr(10)}<function={name}>')} {body_of(parameters, lark, around, '')}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """One call, with both marks or, as the model sometimes writes it, without the first."""
        front = len(_OPEN) if text.startswith(_OPEN) else 0
        start = len(text) - len(text[front:].lstrip())
        if not text.startswith(_FUNCTION, start):
            if _FUNCTION.startswith(text[start:]) and not ended:
                return None
            return Block(max(front, start))
        end = text.find(_END, start)
        if end < 0:
            return Block(len(text)) if ended else None
        behind = end + len(_END)
        if not (head := _NAME.match(text)):
            return Block(behind)
        name, inside = head[1].strip(), text[head.end() : end]
        given = {m[1].strip(): value_of(m[2], name, m[1].strip(), tools)
                 for m in _PARAMETER.finditer(inside)}  # fmt: skip
        if inside.strip() and not given:
            return Block(behind)
        calls = (Call(name, written(given)),)
        tail = text[behind:].lstrip()
        if tail.startswith(_CLOSE):
            return Block(len(text) - len(tail) + len(_CLOSE), calls)
        return None if _CLOSE.startswith(tail) and not ended else Block(behind, calls)


QWEN_XML = QwenXml()
