"""Grammars: constraints on an output, and the port to the backend that enforces them.

Before sampling the engine asks for the allowed tokens; afterwards it reports the sampled one. The
implementation is outside of the engine (`mlcc.model.structured_output.grammars`).
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from typing import Literal, Protocol

from mlcc.engine.batch.adjust_tables import MASK_BITS

Kind = Literal["json_schema", "regex", "choice", "grammar"]


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """Constraint on one output."""

    kind: Kind
    text: str
    """A JSON Schema, a regular expression, a JSON array of texts, or a grammar (GBNF, Lark)."""
    field: str = dataclasses.field(default="", compare=False)
    """The request's field, which errors name."""
    strict: bool = dataclasses.field(default=True, compare=False)
    """Whether a schema that cannot be enforced in full is refused."""
    json_start: str | None = dataclasses.field(default=None, compare=False)
    """The output is JSON that begins with or behind this text, and no name of its objects comes
    twice; None = it is JSON from its start with a schema, else none."""


class Grammar(Protocol):
    """Grammar state of one output."""

    @property
    def ended(self) -> bool:
        """Whether the output is complete and nothing may follow."""
        ...

    @property
    def failed(self) -> bool:
        """Whether the allowed tokens cannot be computed within the limits, or there are none."""
        ...

    @property
    def dead_end(self) -> bool:
        """Whether it failed as no token may follow."""
        ...

    def allowed(self) -> array[int] | None:
        """Mask of the next token (`adjust_tables`), never empty; it allows an end token where the
        output may end. Read-only. None = all tokens."""
        ...

    def accept(self, token: int) -> None:
        """Append a sampled token, not an end token."""
        ...

    def lookahead(self, tokens: Sequence[int]) -> Sequence[array[int] | None]:
        """Masks after the first of these tokens, after the first two, and so on, while they are
        allowed and nothing is forced between them. Does not change the state. May return fewer
        masks."""
        ...

    def forced(self) -> Sequence[int]:
        """Tokens that must follow in any case; may return fewer than there are."""
        ...


class Grammars(Protocol):
    """Opens grammars for one model's tokenizer. Thread-safe."""

    def check(self, structure: Structure) -> None:
        """Raise InvalidRequestError or UnsupportedError, naming `structure.field`, if the
        constraint cannot be enforced. Slow."""
        ...

    def open(self, structure: Structure) -> Grammar:
        """A grammar for one output. Raises what `check` raises; slow for new constraints."""
        ...


def token_bit(token: int) -> int:
    """A token's bit in its int32 word of a mask."""
    bit = 1 << token % MASK_BITS
    return bit - (1 << MASK_BITS) if token % MASK_BITS == MASK_BITS - 1 else bit
