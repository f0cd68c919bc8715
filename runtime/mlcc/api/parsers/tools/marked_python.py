"""Calls in Python's syntax between two marks: LFM2's `<|tool_call_start|>[f(a=1), g()]
<|tool_call_end|>`, and one call per line between OLMo 3's `<function_calls>` and
`</function_calls>`.

Source: Liquid AI's and the Allen Institute's model cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Call, Tools
from mlcc.api.parsers.tools.syntax.lark import Lark
from mlcc.api.parsers.tools.syntax.python_text import python_body, python_calls, python_end
from mlcc.util.fast_dataclass import fast_dataclass

_START = re.compile(r"[\s,]*(?:\[|[A-Za-z_][\w.]{0,127}\()")
"""Start of a list of calls, or of one."""
_MAY_START = re.compile(r"[\s,]*(?:[A-Za-z_][\w.]{0,127})?")


@fast_dataclass(frozen=True)
class MarkedPython:
    """One pair of marks; lists and lines are parsed for both."""

    name: str
    open: str
    close: str
    before: str
    """Text before the first call."""
    between: str
    behind: str
    """Text after the last call."""
    first: bool = False
    json_arguments: bool = False

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def control(self) -> tuple[str, ...]:
        return (self.open, self.close)

    @property
    def trigger(self) -> str:
        return self.open + self.before

    @property
    def after(self) -> str:
        return self.behind + self.close

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        return python_body(name, parameters, lark)

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """All calls up to the closing mark, or up to text that is no call."""
        calls: list[Call] = []
        good = len(self.open)
        """End of the last call."""
        while start := _START.match(text, good):
            end = python_end(text, start.end() - 1)
            if end is None:
                return Block(good if calls else len(text), tuple(calls)) if ended else None
            made = python_calls(text[good:end].lstrip().lstrip(", \n"), tools)
            if not made:
                return Block(good if calls else end, tuple(calls))
            calls += made
            good = end
        rest = text[good:].lstrip()
        if rest.startswith(self.close):
            return Block(len(text) - len(rest) + len(self.close), tuple(calls))
        may_start = bool(_MAY_START.fullmatch(text, good))
        grows = not ended and (self.close.startswith(rest) or may_start)
        return None if grows else Block(good, tuple(calls))


LFM2 = MarkedPython("lfm2", "<|tool_call_start|>", "<|tool_call_end|>", "[", ", ", "]")
OLMO3 = MarkedPython("olmo3", "<function_calls>", "</function_calls>", "", "\n", "")
