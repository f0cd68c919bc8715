"""Reasoning grammar: free text up to the end marker of the reasoning, within a token budget; then
the request's own grammar. It wraps a `Grammar` and needs no grammar backend itself."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

from mlcc.engine.batch.adjust_tables import MASK_BITS
from mlcc.engine.sampling.grammar import Grammar, token_bit

_TAIL = 16
"""Tokens searched for an end marker of several tokens."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning of a model: its markers and its budget."""

    open: int
    """The token that begins it; -1 = the prompt has begun it."""
    close: str
    """The end marker, as text."""
    close_id: int
    """The end marker if it is one token; -1 = several."""
    forced: tuple[int, ...]
    """Tokens forced when the budget is spent, the end marker included."""
    budget: int | None = None
    """Tokens; None = unlimited."""


class ReasoningGrammar:
    """Grammar of one output. then: the grammar after the reasoning; None = none. decode: the
    tokenizer's. ends: end tokens, which are not allowed within reasoning if `then` follows."""

    def __init__(
        self,
        reasoning: Reasoning,
        then: Grammar | None,
        decode: Callable[[Sequence[int]], str],
        mask_words: int,
        ends: frozenset[int],
    ) -> None:
        self._reasoning, self._then, self._decode = reasoning, then, decode
        self._inside = reasoning.open < 0
        self._before = not self._inside
        self._count = 0
        self._tail: list[int] = []
        self._any = array("i", [-1]) * mask_words
        for token in ends:
            self._any[token // MASK_BITS] &= ~token_bit(token)

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        return not self._inside and not self._before and self._then is not None and self._then.ended

    @property
    def failed(self) -> bool:
        """Whether the grammar after the reasoning exceeded a limit."""
        return self._then is not None and self._then.failed

    @property
    def dead_end(self) -> bool:
        """Whether it failed as no token may follow."""
        return self._then is not None and self._then.dead_end

    def allowed(self) -> array[int] | None:
        """Mask of the next token; None = all."""
        if self._then is None:
            return None
        if self._inside:
            return self._any
        mask = self._then.allowed()
        if self._before and mask is not None:
            mask = mask[:]
            mask[self._reasoning.open // MASK_BITS] |= token_bit(self._reasoning.open)
        return mask

    def accept(self, token: int) -> None:
        """Append a sampled token."""
        if self._before:
            self._before = False
            if token == self._reasoning.open:
                self._inside = True
                return
        if not self._inside:
            if self._then is not None:
                self._then.accept(token)
            return
        self._count += 1
        self._tail = [*self._tail[-_TAIL:], token]
        if token == self._reasoning.close_id or self._reasoning.close in self._decode(self._tail):
            self._inside = False

    def lookahead(self, tokens: Sequence[int]) -> Sequence[array[int] | None]:
        """Masks after these tokens; those after the reasoning come from the next grammar."""
        ahead, masks = copy(self), list[array[int] | None]()
        for at, token in enumerate(tokens):
            if not ahead._inside and not (ahead._before and token == self._reasoning.open):
                rest = tokens[at:]
                more = [None] * len(rest) if self._then is None else self._then.lookahead(rest)
                return [*masks, *more]
            mask = ahead.allowed()
            if mask is not None and not mask[token // MASK_BITS] & token_bit(token):
                break
            ahead.accept(token)  # reasoning does not reach the next grammar
            if ahead.forced():
                break
            masks.append(ahead.allowed())
        return masks

    def forced(self) -> Sequence[int]:
        """The end of the reasoning if its budget is spent, or what the next grammar forces."""
        if self._inside:
            budget = self._reasoning.budget
            return self._reasoning.forced if budget is not None and self._count >= budget else ()
        return () if self._before or self._then is None else self._then.forced()
