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
    """Reasoning, which is shown apart."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A call of a tool, or more of its arguments."""

    index: int
    """Its number in the answer."""
    id: str
    """"" = it was told before, and so was the name."""
    name: str
    arguments: str
    """Of JSON's text, what follows."""


Delta: TypeAlias = "ContentDelta | ReasoningDelta | CallDelta"


class OutputParser(Protocol):
    """Of one answer."""

    def push(self, text: str) -> list[Delta]:
        """More of it."""
        ...

    def flush(self) -> list[Delta]:
        """The rest, once no more will come."""
        ...
