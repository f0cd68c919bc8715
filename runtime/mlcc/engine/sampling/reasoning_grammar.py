"""Reasoning before an answer: free up to its last mark, at most a budget of tokens; what the answer
must be holds behind it. A grammar round another (`grammar.py`), for any host: it needs no reader of
grammars itself."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

from mlcc.engine.batch.adjust_tables import MASK_BITS
from mlcc.engine.sampling.grammar import Grammar

_TAIL = 16
"""Tokens in which the last mark is looked for, where it is several."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How a model thinks, and for how long."""

    open: int
    """The token with which it begins; -1 = its prompt has begun it."""
    close: str
    """What ends it, as text."""
    close_id: int
    """The one token of that; -1 = it is several."""
    forced: tuple[int, ...]
    """Tokens that are said for the model when the budget is spent; the mark is among them."""
    budget: int | None = None
    """Tokens; None = as many as it likes."""


class ReasoningGrammar:
    """Of one answer. then: what holds behind the reasoning; None = nothing. decode: as a tokenizer
    does. ends: tokens that end answers, and may not come within reasoning before `then`."""

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
        self._said = 0
        self._tail: list[int] = []
        self._any = array("i", [-1]) * mask_words
        for token in ends:
            self._any[token // MASK_BITS] &= ~_bit(token)

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        return not self._inside and not self._before and self._then is not None and self._then.ended

    @property
    def failed(self) -> bool:
        """Whether a limit of the grammar behind was met."""
        return self._then is not None and self._then.failed

    def allowed(self) -> array[int] | None:
        """The mask of the next token; None = any."""
        if self._then is None:
            return None
        if self._inside:
            return self._any
        mask = self._then.allowed()
        if self._before and mask is not None:
            mask = mask[:]
            mask[self._reasoning.open // MASK_BITS] |= _bit(self._reasoning.open)
        return mask

    def accept(self, token: int) -> None:
        """A token was said."""
        if self._before:
            self._before = False
            if token == self._reasoning.open:
                self._inside = True
                return
        if not self._inside:
            if self._then is not None:
                self._then.accept(token)
            return
        self._said += 1
        self._tail = [*self._tail[-_TAIL:], token]
        if token == self._reasoning.close_id or self._reasoning.close in self._decode(self._tail):
            self._inside = False

    def lookahead(self, tokens: Sequence[int]) -> Sequence[array[int] | None]:
        """The masks behind these tokens; those behind the reasoning are the next grammar's."""
        ahead, masks = copy(self), list[array[int] | None]()
        for at, token in enumerate(tokens):
            if not ahead._inside and not (ahead._before and token == self._reasoning.open):
                rest = tokens[at:]
                more = [None] * len(rest) if self._then is None else self._then.lookahead(rest)
                return [*masks, *more]
            mask = ahead.allowed()
            if mask is not None and not mask[token // MASK_BITS] & _bit(token):
                break
            ahead.accept(token)  # of the reasoning: the next grammar hears nothing
            if ahead.forced():
                break
            masks.append(ahead.allowed())
        return masks

    def forced(self) -> Sequence[int]:
        """The end of the reasoning, where its budget is spent, or what the next grammar forces."""
        if self._inside:
            budget = self._reasoning.budget
            return self._reasoning.forced if budget is not None and self._said >= budget else ()
        return () if self._before or self._then is None else self._then.forced()


def _bit(token: int) -> int:
    """Of a token in its word, as int32 has it."""
    bit = 1 << token % MASK_BITS
    return bit - (1 << MASK_BITS) if token % MASK_BITS == MASK_BITS - 1 else bit
