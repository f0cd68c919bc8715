"""GLM 4.5's notation: `<tool_call>name`, then `<arg_key>key</arg_key><arg_value>value</arg_value>`
for each argument, `</tool_call>`; texts are unquoted, other values are JSON."""

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
_KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_HEAD = re.compile(r"\s*([\w.:/-]{1,128})\s*")
_ARGUMENT = re.compile(rf"\s*{_KEY}\s*(.*?)\s*{_KEY_END}\s*{_VALUE}(.*?){_VALUE_END}\s*", re.DOTALL)


@fast_dataclass(frozen=True)
class Glm:
    """GLM 4.5 and later."""

    name: str = "glm"
    opens: tuple[str, ...] = (_OPEN,)
    control: tuple[str, ...] = (_OPEN, _CLOSE, _KEY, _KEY_END, _VALUE, _VALUE_END)
    first: bool = False
    json_arguments: bool = False
    trigger: str = _OPEN
    between: str = "\n</tool_call>\n<tool_call>"
    after: str = "\n</tool_call>"

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        around = (f"\n{_KEY}", f"{_KEY_END}\n{_VALUE}", _VALUE_END)
        return f"{literal(name)} {body_of(parameters, lark, around, '')}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """One call."""
        at = len(_OPEN)
        # Arguments first: a text may contain the closing mark.
        while (key := text.find(_KEY, at)) >= 0:
            value_end = text.find(_VALUE_END, key)
            if value_end < 0 or 0 <= text.find(_CLOSE, at, key) < key:
                break
            at = value_end + len(_VALUE_END)
        end = text.find(_CLOSE, at)
        begun = text.find(_KEY, at)
        if end < 0 or 0 <= begun < end:  # an incomplete argument
            return Block(len(text)) if ended else None
        behind = end + len(_CLOSE)
        inside = text[len(_OPEN) : end]
        if not (head := _HEAD.match(inside)):
            return Block(behind)
        name, given, at = head[1], {}, head.end()
        while found := _ARGUMENT.match(inside, at):
            given[found[1]] = value_of(found[2], name, found[1], tools)
            at = found.end()
        return Block(behind, (Call(name, written(given)),) if at == len(inside) else ())


GLM = Glm()
