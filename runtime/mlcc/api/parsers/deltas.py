"""What an answer is made of, once it is read: text, reasoning, calls of tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning, which is shown apart."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A call of a tool, or more of its arguments."""

    index: int
    """Its number in the answer."""
    id: str
    """"" = it was told before, and so was the name."""
    name: str
    arguments: str
    """Of JSON's text, what follows."""


Piece: TypeAlias = "Content | Thought | CallPiece"


class Reader(Protocol):
    """Of one answer."""

    def push(self, text: str) -> list[Piece]:
        """More of it."""
        ...

    def flush(self) -> list[Piece]:
        """The rest, once no more will come."""
        ...
