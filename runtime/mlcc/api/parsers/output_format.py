"""How a model writes calls of tools and reasoning: what its chat template shows, or who serves it
says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mlcc.api.parsers.answer_frame import AnswerFrame
from mlcc.api.parsers.deltas import Reader
from mlcc.api.parsers.reasoning import HARMONY, MARKS, Marks, ThoughtReader, marks_of
from mlcc.api.parsers.tools.base import Format
from mlcc.api.parsers.tools.harmony import HarmonyReader
from mlcc.api.parsers.tools.plain_json import PLAIN_JSON
from mlcc.api.parsers.tools.prompted import knows_tools
from mlcc.api.parsers.tools.registry import FORMATS, pick
from mlcc.api.parsers.tools.scanner import CallScanner
from mlcc.api.schema.tool_choice import ToolUse
from mlcc.util.fast_dataclass import fast_dataclass

NONE = "none"
TOOL_PARSERS = tuple(FORMATS)
REASONING_PARSERS = (*(row.name for row in MARKS), NONE)


@fast_dataclass(frozen=True)
class Dialect:
    """Of one model."""

    format: Format = PLAIN_JSON
    marks: Marks | None = None
    """None = reasoning, if there is any, stays in the text."""
    native: bool = False
    """Whether the chat template itself tells the model of tools."""

    def named(self, tools: str | None = None, reasoning: str | None = None) -> Dialect:
        """The same with other parsers, by their names; None = as the template says."""
        format = FORMATS[tools] if tools else self.format
        marks = self.marks
        if reasoning:
            marks = next((row for row in MARKS if row.name == reasoning), None)
        return replace(self, format=format, marks=marks)

    @property
    def control(self) -> tuple[str, ...]:
        """What must be seen of control tokens in an answer, as the vocabulary writes them."""
        marks = (self.marks.open, self.marks.close) if self.marks else ()
        frame = (self.marks and self.marks.answer) or ()
        return (*self.format.control, *marks, *frame)

    @property
    def channels(self) -> bool:
        """Whether answers are gpt-oss' channels."""
        return self.format.name == HARMONY or (
            self.marks is not None and self.marks.name == HARMONY
        )

    def opened(self, prompt_end: str) -> bool:
        """Whether a prompt that ends so leaves the model in its reasoning."""
        return self.marks is not None and prompt_end.rstrip().endswith(self.marks.open)

    def closed(self, prompt_end: str) -> bool:
        """Whether it tells the model that reasoning is over."""
        return self.marks is not None and prompt_end.rstrip().endswith(self.marks.close)

    def reader(self, use: ToolUse, opened: bool, new_id: Callable[[], str]) -> Reader | None:
        """Of one answer; None = it is text and nothing else."""
        if self.channels:
            return HarmonyReader(self.marks is not None, bool(use.tools), new_id)
        then: Reader | None = None
        if use.tools:
            tools = {tool.name: tool.parameters for tool in use.tools}
            then = CallScanner(self.format, tools, new_id)
        if self.marks is None:
            return then
        if self.marks.answer is not None:
            then = AnswerFrame(self.marks.answer, then)
        return ThoughtReader(self.marks, opened, then)


def dialect_of(template: str | None, tools: str | None = None) -> Dialect:
    """What a chat template shows, and the one that the same model has for tools."""
    whole = "\n".join(filter(None, (template, tools)))
    native = knows_tools(whole)
    return Dialect(pick(whole) if native else PLAIN_JSON, marks_of(whole), native)
