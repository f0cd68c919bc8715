"""MiniMax M2's notation: `<minimax:tool_call>`, an `<invoke name="f">` for each call, and in it a
`<parameter name="key">` with an unquoted value for each argument.

Source: MiniMax's guide to tool calling with M2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Call, Tools
from mlcc.api.parsers.tools.syntax.json_text import sound, written
from mlcc.api.parsers.tools.syntax.lark import Lark, literal
from mlcc.api.parsers.tools.syntax.xml_text import body_of, value_of
from mlcc.util.fast_dataclass import fast_dataclass

_OPEN, _CLOSE = "<minimax:tool_call>", "</minimax:tool_call>"
_INVOKE, _INVOKE_END = "<invoke name=", "</invoke>"
_PARAMETER, _PARAMETER_END = "<parameter name=", "</parameter>"
_NAMED = r"""["']?([^"'<>\n]{1,256})["']?>"""
_HEAD = re.compile(rf"\s*(?:{_CLOSE}|{_INVOKE}{_NAMED})")
_NEXT = re.compile(rf"\s*(?:{_INVOKE_END}|{_PARAMETER}{_NAMED})")
_LONGEST_HEAD = 300


@fast_dataclass(frozen=True)
class MiniMax:
    """MiniMax M2."""

    name: str = "minimax"
    opens: tuple[str, ...] = (_OPEN,)
    control: tuple[str, ...] = (_OPEN, _CLOSE)
    first: bool = False
    json_arguments: bool = False
    trigger: str = f'{_OPEN}\n{_INVOKE}"'
    between: str = f'\n{_INVOKE}"'
    after: str = f"\n{_CLOSE}"

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        around = (f'\n{_PARAMETER}"', '">', _PARAMETER_END)
        arguments = body_of(parameters, lark, around, "")
        return f"""{literal(f'{name}">')} {arguments} {literal(f"{chr(10)}{_INVOKE_END}")}"""

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """All calls up to the closing mark, or up to text that is no call."""
        calls: list[Call] = []
        good = len(_OPEN)
        """End of the last call."""
        while head := _HEAD.match(text, good):
            if head[1] is None:
                return Block(head.end(), tuple(calls))
            given, at = {}, head.end()
            while (part := _NEXT.match(text, at)) and part[1] is not None:
                end = text.find(_PARAMETER_END, part.end())
                if end < 0:
                    return Block(good, tuple(calls)) if ended else None
                given[sound(part[1])] = value_of(text[part.end() : end], head[1], part[1], tools)
                at = end + len(_PARAMETER_END)
            if part is None:
                grows = not ended and _may_become(text[at:], (_PARAMETER, _INVOKE_END))
                return None if grows else Block(good, tuple(calls))
            good = part.end()
            calls.append(Call(sound(head[1]), written(given)))
        grows = not ended and _may_become(text[good:], (_INVOKE, _CLOSE))
        return None if grows else Block(good, tuple(calls))


def _may_become(rest: str, marks: tuple[str, str]) -> bool:
    """Whether more text can complete it to one of the marks, with its name."""
    rest = rest.lstrip()
    long = len(rest) > _LONGEST_HEAD or ">" in rest or "\n" in rest
    return any(m.startswith(rest) or (rest.startswith(m) and not long) for m in marks)


MINIMAX = MiniMax()
