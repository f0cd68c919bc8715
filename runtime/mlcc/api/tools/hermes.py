"""Hermes' way, which Qwen 2.5, Qwen 3 and many others have: `<tool_call>{"name": ..., "arguments":
{...}}</tool_call>`, one after another, behind text or alone."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.api.tools.json_text import calls_of, json_end, parsed
from mlcc.api.tools.port import Block, Tools


@dataclass(frozen=True)
class TaggedJson:
    """JSON between two marks."""

    name: str = "hermes"
    open: str = "<tool_call>"
    close: str = "</tool_call>"
    first: bool = False

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def control(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.open, self.close)))

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """A mark, JSON, and the other mark, which the end of the answer stands for."""
        rest = text[len(self.open) :]
        start = len(text) - len(rest.lstrip())
        if start == len(text):
            return Block(len(text)) if ended else None
        if text[start] not in "{[":
            return Block(len(self.open))
        end = json_end(text, start)
        if end is None:
            return Block(len(text)) if ended else None
        if not (calls := calls_of(parsed(text[start:end]))):
            return Block(end)
        tail = text[end:].lstrip()
        if not self.close:
            return Block(end, calls)
        if tail.startswith(self.close):
            return Block(len(text) - len(tail) + len(self.close), calls)
        if self.close.startswith(tail) and not ended:
            return None
        return Block(end, calls)


HERMES = TaggedJson()
