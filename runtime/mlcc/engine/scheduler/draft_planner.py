"""Guesses in a step: a place for them behind the tokens that are known, and what becomes of pages
and states once it is known which were right.

They get what all else leaves of a step, and of the pages: whoever waits is not to wait longer, and
nobody gives way, for something that may be wrong. What is guessed is `guesses.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.engine.kv_cache.cache_manager import CacheManager
from mlcc.engine.scheduler.budgets import StepBudget
from mlcc.engine.sequence import TokenSequence
from mlcc.engine.spec_decode.speculator import Speculator


class DraftPlanner:
    """Of one scheduler. speculator: None = nothing is guessed."""

    def __init__(self, pools: CacheManager, speculator: Speculator | None) -> None:
        self._pools, self._speculator = pools, speculator
        self.waited = False
        """Whether a sequence is not in the step that is planned, as guesses may follow its token in
        flight."""

    def begin(self, decodes: int) -> None:
        """A step is planned in which so many sequences decode."""
        self.waited = False
        if self._speculator is not None:
            self._speculator.begin(decodes)

    def waits(self, seq: TokenSequence) -> bool:
        """Whether its token in flight is waited for, as guesses may follow that."""
        waits = bool(seq.pending) and seq.draft_state is not None and seq.draft_state.holds()
        self.waited |= waits
        return waits

    def wants(self, seqs: Sequence[TokenSequence]) -> bool:
        """Whether the next step of sequences that all decode may be another than plain decoding."""
        if self._speculator is None:
            return False
        self.begin(len(seqs))
        if self._speculator.resting:
            return False
        return any(s.draft_state is not None and s.draft_state.wants(bool(s.pending)) for s in seqs)

    def reads(self, seq: TokenSequence) -> bool:
        """Whether what is next of it is of a prompt, or is computed again after it gave way; what
        follows guesses that were wrong in a model with states is neither."""
        follows = 0
        if self._speculator is not None and seq.draft_state is not None and _said(seq):
            follows = self._speculator.longest
        return seq.remaining > 1 + follows

    def extend(
        self, chunks: Sequence[tuple[TokenSequence, int]], room: StepBudget
    ) -> list[tuple[TokenSequence, int]]:
        """The chunks of a step, and behind those at whose end a token is sampled their guesses."""
        return [(seq, count + self._guess(seq, count, room)) for seq, count in chunks]

    def _guess(self, seq: TokenSequence, count: int, room: StepBudget) -> int:
        """How many."""
        if seq.draft_state is None or seq.pending or count != seq.remaining or not _said(seq):
            return 0
        most = min(seq.limit - len(seq.tokens) - 1, room.rows, room.tokens)
        draft = room.fit_draft(seq, seq.draft_state.propose(most))
        if not draft or not self._pools.fork(seq.caches):
            return 0
        fits = self._pools.claim(seq.caches, seq.computed, count + len(draft))
        seq.draft, seq.before = tuple(draft[: fits - count]), seq.computed
        room.take_draft(seq)
        return len(seq.draft)

    def settle(self, seq: TokenSequence, right: int) -> None:
        """The step with its guesses is done, and it goes on; so many of them were right. What was
        computed of the others is given back: pages, and of states the whole step."""
        if not seq.draft:  # it gave way meanwhile
            return
        if right == len(seq.draft):
            self._pools.advance(seq.caches)
        elif self._pools.tree.has_states:
            seq.computed = seq.before
        seq.draft = ()
        self._pools.trim(seq.caches, seq.computed)


def _said(seq: TokenSequence) -> int:
    """Known tokens of its answer."""
    return len(seq.tokens) - seq.prompt_tokens
