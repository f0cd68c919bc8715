"""The parts of a parsed answer (content, reasoning, tool calls) and the port of its parsers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias


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


Place: TypeAlias = Literal["reasoning", "mark", "answer"]
"""Where the text of an answer ends: in reasoning, in what may be the mark that ends it, or
elsewhere."""


class OutputParser(Protocol):
    """Parses the text of one answer as it is generated."""

    @property
    def held(self) -> int:
        """Characters at the end of the text that are in no part yet."""
        ...

    @property
    def place(self) -> Place:
        """Where the text so far ends."""
        ...

    def push(self, text: str) -> list[Delta]:
        """Parse more text."""
        ...

    def flush(self, cut: bool = False) -> list[Delta]:
        """The remaining parts, at the end of the text. cut: the token limit ended it, so a call or
        a mark that is not complete is left out; else it is text."""
        ...
