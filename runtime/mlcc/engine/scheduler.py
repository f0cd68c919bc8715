"""Which sequences run in the next step, and how many tokens of each.

Iteration-level scheduling (Orca, Yu et al., 2022) over paged memory with preemption by
recomputation (vLLM, Kwon et al., 2023) and chunked prefill (Sarathi-Serve, Agrawal et al., 2024).
It builds no arrays (`packing.py`), reads no results (`engine.py`).

Order: whatever is older comes first, for pages and for admission; within the token budget of a step
decoding sequences come before prompts. Every running sequence is older than every waiting one, so
the oldest can always take pages from the youngest and nothing waits forever.
"""

from __future__ import annotations

from collections import deque

from mlcc.engine.batch import Capacity, int32
from mlcc.engine.limits import pages_for
from mlcc.engine.pages import PagePool
from mlcc.engine.sequence import Sequence

Chunk = tuple[Sequence, int]
"""A sequence and how many of its next tokens to compute."""


class Scheduler:
    """The waiting and the running sequences."""

    def __init__(self, capacity: Capacity, pool: PagePool) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0
        self._capacity = capacity
        self._pool = pool
        # With no more sequences than tokens in a step, each of them can move in every step.
        self._max_running = min(capacity.max_batch, capacity.max_step_tokens)

    def add(self, seq: Sequence) -> None:
        self.waiting.append(seq)

    def remove(self, seq: Sequence) -> None:
        """Forget a finished sequence; its pages are free."""
        if seq in self.running:
            self.running.remove(seq)
        else:
            self.waiting.remove(seq)
        self._release(seq)

    def schedule(self, step: int) -> list[Chunk]:
        """What to run as `step`, oldest first; empty if nothing can run before a commit.

        Takes pages for it and preempts for them, but leaves `computed` to the packing.
        """
        chunks: list[Chunk] = []
        budget = self._prefill_budget(step)
        index = 0
        while index < len(self.running):  # preemption shortens the list, from its end
            seq = self.running[index]
            index += 1
            if not seq.runnable(step):
                continue
            remaining = seq.remaining
            count = self._grow(seq, 1 if remaining == 1 else min(remaining, budget))
            if remaining > 1:
                budget -= count
            if count:
                chunks.append((seq, count))
        self._admit(chunks, budget)
        return chunks

    def _prefill_budget(self, step: int) -> int:
        decodes = sum(1 for seq in self.running if seq.remaining == 1 and seq.runnable(step))
        return self._capacity.max_step_tokens - decodes

    def _admit(self, chunks: list[Chunk], budget: int) -> None:
        """Start waiting sequences, first come first served, while slots, tokens and pages last."""
        while budget and self.waiting and len(self.running) < self._max_running:
            seq = self.waiting[0]
            if seq.pending or not self._has_room(seq):
                return
            self.running.append(self.waiting.popleft())
            count = self._grow(seq, min(seq.remaining, budget))
            budget -= count
            if count:
                chunks.append((seq, count))

    def _has_room(self, seq: Sequence) -> bool:
        """Whether its whole prompt fits beside what the running sequences will want soon.

        Only a guess to keep preemption rare: one page for each, and the rest of their prompts.
        """
        wanted = pages_for(seq.planned, self._capacity)
        for other in self.running:
            held = len(other.pages) - other.first_page
            wanted += max(1, pages_for(other.planned, self._capacity) - held)
        return wanted <= self._pool.free_count

    def _grow(self, seq: Sequence, want: int) -> int:
        """Take pages for up to `want` more tokens; returns for how many there is room."""
        if self._capacity.window is not None:
            self._slide(seq, self._capacity.window)
        size = self._capacity.page_size
        room = len(seq.pages) * size - seq.computed
        if room >= want:
            return want
        if room == 0 and not self._make_room(seq):
            return 0
        missing = -(-(want - room) // size)
        seq.pages.extend(self._pool.allocate(min(missing, self._pool.free_count)))
        return min(want, len(seq.pages) * size - seq.computed)

    def _slide(self, seq: Sequence, window: int) -> None:
        """Give back the pages that no query from here on can see."""
        first = (seq.computed - window + 1) // self._capacity.page_size
        if first > seq.first_page:
            self._pool.free(seq.pages[seq.first_page : first])
            seq.pages[seq.first_page : first] = int32([-1] * (first - seq.first_page))
            seq.first_page = first

    def _make_room(self, seq: Sequence) -> bool:
        """Preempt younger sequences until a page is free; False = it is the youngest, and waits."""
        while not self._pool.free_count:
            if self.running[-1] is seq:
                return False
            self._preempt_youngest()
        return True

    def _preempt_youngest(self) -> None:
        seq = self.running.pop()
        self._release(seq)
        self.waiting.appendleft(seq)
        self.preemptions += 1

    def _release(self, seq: Sequence) -> None:
        self._pool.free(seq.pages[seq.first_page :])
        seq.pages, seq.first_page, seq.computed = int32(), 0, 0

    def check_integrity(self) -> None:
        """Raise AssertionError if order, pages or counts of the sequences disagree."""
        order = [seq.arrival for seq in (*self.running, *self.waiting)]
        if order != sorted(order):
            raise AssertionError(f"a younger sequence runs before an older one: {order}")
        for seq in (*self.running, *self.waiting):
            full = len(seq.pages) == -(-seq.computed // self._capacity.page_size)
            slid = all((page < 0) == (i < seq.first_page) for i, page in enumerate(seq.pages))
            if seq.finished or not full or not slid or not 0 < seq.planned <= seq.limit:
                raise AssertionError(f"sequence {seq.request.id!r} is inconsistent: {seq}")
        if any(seq.computed for seq in self.waiting):
            raise AssertionError("a waiting sequence holds pages")
        owned = [page for seq in self.running for page in seq.pages[seq.first_page :]]
        self._pool.check_integrity(owned)
