"""The output format of a model: how it writes tool calls and reasoning. Detected in the chat
template, or set by `--tool-parser` and `--reasoning-parser`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mlcc.api.parsers.deltas import OutputParser
from mlcc.api.parsers.reasoning import (
    HARMONY,
    REASONING_TAGS,
    AnswerFrame,
    ReasoningParser,
    ReasoningTags,
    reasoning_tags_of,
)
from mlcc.api.parsers.tools.base import ToolFormat
from mlcc.api.parsers.tools.harmony import HarmonyParser
from mlcc.api.parsers.tools.plain_json import PLAIN_JSON
from mlcc.api.parsers.tools.prompted import knows_tools
from mlcc.api.parsers.tools.registry import FORMATS, pick
from mlcc.api.parsers.tools.scanner import ToolCallParser
from mlcc.api.schema.tool_fields import ToolUse
from mlcc.util.fast_dataclass import fast_dataclass

NONE = "none"
TOOL_PARSERS = tuple(FORMATS)
REASONING_PARSERS = (*(row.name for row in REASONING_TAGS), NONE)


@fast_dataclass(frozen=True)
class OutputFormat:
    """Of one model."""

    format: ToolFormat = PLAIN_JSON
    tags: ReasoningTags | None = None
    """None = reasoning, if there is any, stays in the text."""
    native: bool = False
    """Whether the chat template itself tells the model of tools."""

    def named(self, tools: str | None = None, reasoning: str | None = None) -> OutputFormat:
        """The same with other parsers, by their names; None = as the template says."""
        format = FORMATS[tools] if tools else self.format
        tags = self.tags
        if reasoning:
            tags = next((row for row in REASONING_TAGS if row.name == reasoning), None)
        return replace(self, format=format, tags=tags)

    @property
    def control(self) -> tuple[str, ...]:
        """What must be seen of control tokens in an answer, as the vocabulary writes them."""
        tags = (self.tags.open, self.tags.close) if self.tags else ()
        frame = (self.tags and self.tags.answer) or ()
        return (*self.format.control, *tags, *frame)

    @property
    def channels(self) -> bool:
        """Whether answers are gpt-oss' channels."""
        return self.format.name == HARMONY or (self.tags is not None and self.tags.name == HARMONY)

    def opened(self, prompt_end: str) -> bool:
        """Whether a prompt that ends so leaves the model in its reasoning."""
        return self.tags is not None and prompt_end.rstrip().endswith(self.tags.open)

    def closed(self, prompt_end: str) -> bool:
        """Whether it tells the model that reasoning is over."""
        return self.tags is not None and prompt_end.rstrip().endswith(self.tags.close)

    def parser(self, use: ToolUse, opened: bool, new_id: Callable[[], str]) -> OutputParser | None:
        """Of one answer; None = it is text and nothing else."""
        if self.channels:
            return HarmonyParser(self.tags is not None, bool(use.tools), new_id)
        then: OutputParser | None = None
        if use.tools:
            tools = {tool.name: tool.parameters for tool in use.tools}
            then = ToolCallParser(self.format, tools, new_id)
        if self.tags is None:
            return then
        if self.tags.answer is not None:
            then = AnswerFrame(self.tags.answer, then)
        return ReasoningParser(self.tags, opened, then)


def output_format_of(template: str | None, tools: str | None = None) -> OutputFormat:
    """What a chat template shows, and the one that the same model has for tools."""
    whole = "\n".join(filter(None, (template, tools)))
    native = knows_tools(whole)
    return OutputFormat(pick(whole) if native else PLAIN_JSON, reasoning_tags_of(whole), native)
