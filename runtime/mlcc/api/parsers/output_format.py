"""The output format of a model: how it writes tool calls and reasoning. Detected in the chat
template, or set by `--tool-parser` and `--reasoning-parser`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from mlcc.api.parsers.deltas import ContentDelta, Delta, OutputParser
from mlcc.api.parsers.reasoning import (
    HARMONY,
    REASONING_TAGS,
    AnswerFrame,
    ReasoningParser,
    ReasoningTags,
    reasoning_tags_of,
)
from mlcc.api.parsers.tools.base import ToolFormat, Tools
from mlcc.api.parsers.tools.harmony import HarmonyParser
from mlcc.api.parsers.tools.plain_json import PLAIN_JSON
from mlcc.api.parsers.tools.prompted import knows_tools
from mlcc.api.parsers.tools.registry import FORMATS, pick
from mlcc.api.parsers.tools.scanner import ToolCallParser
from mlcc.api.schema.tool_fields import ToolUse
from mlcc.engine.text.stop_checker import ContentSpan, ParserSpec
from mlcc.errors import InvalidRequestError
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
        return self._parser(_tools(use), opened, new_id)

    def parser_spec(self, use: ToolUse, opened: bool) -> ParserSpec | None:
        """What an engine needs to make the same parser with `new_content_parser`."""
        if self.tags is None and not use.tools and not self.channels:
            return None
        reasoning = self.tags.name if self.tags else ""
        return ParserSpec(self.format.name, reasoning, opened, json.dumps(_tools(use)))

    def _parser(self, tools: Tools, opened: bool, new_id: Callable[[], str]) -> OutputParser | None:
        if self.channels:
            return HarmonyParser(self.tags is not None, bool(tools), new_id)
        then: OutputParser | None = None
        if tools:
            then = ToolCallParser(self.format, tools, new_id)
        if self.tags is None:
            return then
        if self.tags.answer is not None:
            then = AnswerFrame(self.tags.answer, then)
        return ReasoningParser(self.tags, opened, then)


def _tools(use: ToolUse) -> Tools:
    return {tool.name: tool.parameters for tool in use.tools}


class AnswerReader:
    """Parses one answer as it is generated, and counts the tokens of its reasoning. parser: None =
    the answer is plain text."""

    def __init__(self, parser: OutputParser | None) -> None:
        self._parser = parser
        self.reasoning_tokens = 0
        """Tokens between the marks of its reasoning."""
        self._pending = 0
        """Tokens that belong to the reasoning unless they are its closing mark."""

    def push(self, text: str, tokens: int) -> list[Delta]:
        """Parse more text, the newest of `tokens` tokens."""
        if self._parser is None:
            return [ContentDelta(text)] if text else []
        if self._parser.place != "answer":
            self._pending += tokens
        deltas = self._parser.push(text) if text else []
        place = self._parser.place
        if place == "reasoning":
            self.reasoning_tokens += self._pending
        if place != "mark":
            self._pending = 0
        return deltas

    def flush(self, cut: bool) -> list[Delta]:
        """The remaining parts, at the end of the text. cut: the token limit ended it."""
        return [] if self._parser is None else self._parser.flush(cut)


class ContentFinder:
    """A `ContentParser`: where the content of an answer is, as its parser finds it."""

    def __init__(self, parser: OutputParser) -> None:
        self._parser = parser
        self._text = ""
        """The output from `_begin` on."""
        self._begin = 0

    @property
    def decided(self) -> int:
        """Length of the output so far of which it is known what is content."""
        end = self._begin + len(self._text)
        return end if self._parser.place != "answer" else end - self._parser.held

    def push(self, text: str) -> list[ContentSpan]:
        """Parse more text; returns the content that became known."""
        self._text += text
        return self._spans(self._parser.push(text))

    def flush(self, cut: bool) -> list[ContentSpan]:
        """The remaining content, at the end of the text."""
        return self._spans(self._parser.flush(cut))

    def _spans(self, deltas: Sequence[Delta]) -> list[ContentSpan]:
        """The content of the deltas. The last one ends where undecided text begins; others are
        searched, as text between them may be left out."""
        spans: list[ContentSpan] = []
        at = 0
        for number, delta in enumerate(deltas, 1):
            if not isinstance(delta, ContentDelta):
                continue
            start = len(self._text) - self._parser.held - len(delta.text)
            if number < len(deltas) or not self._text.startswith(delta.text, max(start, 0)):
                start = max(self._text.find(delta.text, at), at)
            at = start + len(delta.text)
            spans.append((self._begin + start, delta.text))
        done = max(self.decided - self._begin, at)
        self._text, self._begin = self._text[done:], self._begin + done
        return spans


def new_content_parser(spec: ParserSpec) -> ContentFinder:
    """The parser that an engine asks for an answer's content. Raises InvalidRequestError for one
    that does not exist: it may come from another server."""
    parser = None
    if spec.tools in FORMATS and spec.reasoning in ("", *REASONING_PARSERS):
        format = OutputFormat().named(spec.tools, spec.reasoning or None)
        parser = format._parser(_schemas(spec), spec.opened, str)
    if parser is None:
        raise InvalidRequestError(f"there are no parsers {spec.tools!a} and {spec.reasoning!a}")
    return ContentFinder(parser)


def _schemas(spec: ParserSpec) -> Tools:
    try:
        found = json.loads(spec.schemas)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise InvalidRequestError("the schemas of a parser must be a JSON object of objects")
    return found


def output_format_of(template: str | None, tools: str | None = None) -> OutputFormat:
    """The output format that a chat template implies; `tools`: name of the model's tool parser."""
    whole = "\n".join(filter(None, (template, tools)))
    native = knows_tools(whole)
    return OutputFormat(pick(whole) if native else PLAIN_JSON, reasoning_tags_of(whole), native)
