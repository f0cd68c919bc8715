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
    """The marks of one way, as expressions."""

    begin: str
    """What the section begins with, to the letter."""
    head: re.Pattern[str]
    """Up to the object. Its first group that matched is the name of the tool; `id`, if it has such
    a group, is how the model calls the call."""
    tail: re.Pattern[str]
    stop: re.Pattern[str]

    def block(self, text: str, ended: bool) -> Block | None:
        """All calls, to the last mark or to the end of the answer; as `Format.block` says."""
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
