"""Tool calls in a section between two tags, each a head with the name, a JSON object and a tail:
the notation of DeepSeek and Kimi, with different tags.
"""

from __future__ import annotations

import re

from mlcc.api.parsers.tools.base import Block, Call
from mlcc.api.parsers.tools.syntax.json_text import json_end, parsed, written
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Section:
    """The marks of one notation, as regular expressions."""

    begin: str
    """Text that opens the section."""
    head: re.Pattern[str]
    """Everything up to the object. The first matching group is the tool's name; the group `id`, if
    there is one, is the call's id."""
    tail: re.Pattern[str]
    stop: re.Pattern[str]

    def block(self, text: str, ended: bool) -> Block | None:
        """All calls, up to the closing mark or the end of the answer, as in `ToolFormat.block`."""
        calls: list[Call] = []
        at = len(self.begin)
        while not (stop := self.stop.match(text, at)):
            head = self.head.match(text, at)
            end = json_end(text, head.end()) if head else None
            tail = self.tail.match(text, end) if end is not None else None
            given = parsed(text[head.end() : end]) if head and end is not None else None
            if head and end is not None and not isinstance(given, dict):
                return Block(end)
            if head and end is not None and (tail or ended):
                groups = head.groupdict()
                name = next(name for name in head.groups() if name)
                calls.append(Call(groups.get("name") or name, written(given), groups.get("id", "")))
                at = tail.end() if tail else end
                continue
            return (Block(at if calls else len(text), tuple(calls))) if ended else None
        return Block(stop.end(), tuple(calls))
