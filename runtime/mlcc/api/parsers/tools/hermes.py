"""JSON between two marks. Hermes' marks are `<tool_call>{"name": ..., "arguments":
{...}}</tool_call>`, shared by Qwen 2.5, Qwen 3 and many others; Granite 3 writes
`<|tool_call|>[{...}, {...}]`, Nemotron Nano 2 `<TOOLCALL>[{...}]</TOOLCALL>`, Falcon 3 and H1 an
array between Hermes' marks, and Firefunction 2 an array behind `functools`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.api.parsers.tools.base import Block, Tools
from mlcc.api.parsers.tools.syntax.json_text import calls_of, json_end, parsed
from mlcc.api.parsers.tools.syntax.lark import Lark, literal
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class TaggedJson:
    """Calls as JSON between an opening and a closing tag."""

    name: str
    open: str
    close: str
    """ "" = there is none."""
    between: str
    after: str
    head: str = '{"name": '
    array: str = ""
    """ "[" = calls are in an array."""
    first: bool = False
    json_arguments: bool = True

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def trigger(self) -> str:
        return self.open + self.array

    @property
    def control(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.open, self.close)))

    def body(self, name: str, parameters: Mapping[str, Any], lark: Lark) -> str:
        head = lark.text(f'{self.head}{literal(name)}, "arguments": ')
        return f"{head} {lark.json(parameters)} {literal('}')}"

    def block(self, text: str, ended: bool, tools: Tools) -> Block | None:
        """A block, up to the closing mark or the end of the answer."""
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


HERMES = TaggedJson(
    "hermes",
    "<tool_call>",
    "</tool_call>",
    between="\n</tool_call>\n<tool_call>",
    after="\n</tool_call>",
    head='\n{"name": ',
)
GRANITE = TaggedJson("granite", "<|tool_call|>", "", between=", ", after="]", array="[")
NEMOTRON = TaggedJson(
    "nemotron", "<TOOLCALL>", "</TOOLCALL>", between=", ", after="]</TOOLCALL>", array="["
)
FUNCTOOLS = TaggedJson("functools", "functools", "", between=", ", after="]", array="[")
FALCON = TaggedJson(
    "falcon",
    "<tool_call>",
    "</tool_call>",
    between=",\n",
    after="\n]\n</tool_call>",
    array="\n[\n",
)
