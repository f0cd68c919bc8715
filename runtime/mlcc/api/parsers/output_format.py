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
    """The output format of one model."""

    format: ToolFormat = PLAIN_JSON
    tags: ReasoningTags | None = None
    """None = reasoning, if any, is not separated from the text."""
    native: bool = False
    """Whether the chat template describes tools to the model."""

    def named(self, tools: str | None = None, reasoning: str | None = None) -> OutputFormat:
        """A copy with other parsers, by name; None = as detected in the template."""
        format = FORMATS[tools] if tools else self.format
        tags = self.tags
        if reasoning:
            tags = next((row for row in REASONING_TAGS if row.name == reasoning), None)
        return replace(self, format=format, tags=tags)

    @property
    def control(self) -> tuple[str, ...]:
        """Control tokens that the parser must see in an answer."""
        tags = (self.tags.open, self.tags.close) if self.tags else ()
        frame = (self.tags and self.tags.answer) or ()
        return (*self.format.control, *tags, *frame)

    @property
    def channels(self) -> bool:
        """Whether answers are in gpt-oss' channels."""
        return self.format.name == HARMONY or (self.tags is not None and self.tags.name == HARMONY)

    def opened(self, prompt_end: str) -> bool:
        """Whether a prompt with this end opens the reasoning block."""
        return self.tags is not None and prompt_end.rstrip().endswith(self.tags.open)

    def closed(self, prompt_end: str) -> bool:
        """Whether a prompt with this end closes the reasoning block."""
        return self.tags is not None and prompt_end.rstrip().endswith(self.tags.close)

    def parser(self, use: ToolUse, opened: bool, new_id: Callable[[], str]) -> OutputParser | None:
        """The parser of one answer; None = the answer is plain text."""
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
    """The output format that a chat template implies; `tools`: name of the model's tool parser."""
    whole = "\n".join(filter(None, (template, tools)))
    native = knows_tools(whole)
    return OutputFormat(pick(whole) if native else PLAIN_JSON, reasoning_tags_of(whole), native)
