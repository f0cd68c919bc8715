"""What an answer must look like, and the port to whoever holds it to that.

The engine asks, before a token is sampled, which ones may come, and tells what came. How that is
known is an adapter's, outside of the engine (`mlcc.model.structured_output.backend`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Kind = Literal["json_schema", "regex", "choice", "grammar"]


@dataclass(frozen=True, slots=True)
class Structure:
    """What one request wants its answer to be."""

    kind: Kind
    text: str
    """A JSON Schema, a regular expression, a JSON array of texts, or a grammar (GBNF, Lark)."""
    field: str = field(default="", compare=False)
    """Where the request says so: errors name it."""


class Grammar(Protocol):
    """Of one answer: it knows what was said so far."""

    @property
    def ended(self) -> bool:
        """Whether the answer is complete, and nothing may follow."""
        ...

    @property
    def failed(self) -> bool:
        """Whether it cannot say what may follow: that would take more than is allowed."""
        ...

    def allowed(self) -> array[int] | None:
        """The mask of tokens that may follow, as `adjust_tables` has it, never empty; an end token
        where the answer may end. Not to be changed. None = any may."""
        ...

    def accept(self, token: int) -> None:
        """A token was said, no end token."""
        ...

    def lookahead(self, tokens: Sequence[int]) -> Sequence[array[int] | None]:
        """As `allowed`, behind the first of these tokens, behind the first two, and so on, as far
        as they may follow and nothing is forced between them. Nothing is said by that. May be fewer
        than there could be, for who cannot know."""
        ...

    def forced(self) -> Sequence[int]:
        """Tokens that must follow, whatever the model would say; may be fewer than there are."""
        ...


class Grammars(Protocol):
    """Makes them, for one model's tokenizer. Thread-safe."""

    def check(self, structure: Structure) -> None:
        """Raise InvalidRequestError or UnsupportedError, naming `structure.field`, if it cannot be
        held to. Takes time."""
        ...

    def open(self, structure: Structure) -> Grammar:
        """For one answer. Raises what `check` does; takes its time for what is new."""
        ...
