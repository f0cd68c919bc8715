"""The parts of a parsed answer (content, reasoning, tool calls) and the port of its parsers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Reasoning, which is sent separately from content."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The start of a tool call, or more of its arguments."""

    index: int
    """Its number in the answer."""
    id: str
    """"" = id and name were sent before."""
    name: str
    arguments: str
    """The next part of the arguments' JSON text."""


Delta: TypeAlias = "ContentDelta | ReasoningDelta | CallDelta"


class OutputParser(Protocol):
    """Parses the text of one answer as it is generated."""

    def push(self, text: str) -> list[Delta]:
        """Parse more text."""
        ...

    def flush(self) -> list[Delta]:
        """The remaining parts, at the end of the text."""
        ...
