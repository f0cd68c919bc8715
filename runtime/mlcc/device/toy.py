"""The exact oracle: a device whose next token is a hash of the prefix *as read through the pages*.

It stores tokens where a model would store keys and values, and reads back what a query can see.
So every fault of scheduling, paging, windows, preemption or pipelining gives another token, or
raises: each slot also holds its position and a digest of all before it, which tell stale contents
from the sequence's own. Not a model, not fast, and runs anywhere (standard library only).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from mlcc.device.check import Span, check_batch, require
from mlcc.engine.batch import Batch, Capacity, Result
from mlcc.engine.sampling import mix64

_MASK = (1 << 64) - 1


class RowParams(NamedTuple):
    """The sampling parameters of one logit row, each as float32 holds it."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    uniform: float


def toy_token(visible: Sequence[int], params: RowParams, vocab_size: int) -> tuple[int, float]:
    """The toy's next token after the visible tokens, and its made-up log-probability.

    Greedy depends on the tokens alone; sampling on every parameter, so that none can be mixed up.
    """
    digest = blake2b(array("i", visible).tobytes(), digest_size=8)
    if params.temperature > 0:
        floats = (params.temperature, params.top_p, params.min_p, params.uniform)
        digest.update(array("f", floats).tobytes() + array("i", [params.top_k]).tobytes())
    value = int.from_bytes(digest.digest(), "little")
    return value % vocab_size, -(value >> 40) / 2.0**24


class ToyExecutor:
    """An Executor over integers. Raises BadBatchError at the first thing that is not right.

    Steps wait in a queue and run as late as a device may: in order, each when it is collected. So
    whatever is planned meanwhile must hold for steps that have not run.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.depth = 2  # so that planning ahead is exercised
        slots = capacity.num_pages * capacity.page_size
        self._tokens = array("i", [0]) * slots
        self._positions = array("i", [-1]) * slots
        """Position of the token in each slot; -1 = never written."""
        self._chains = [0] * slots
        """Digest of the token in each slot and of all before it."""
        self._last_sampled: Sequence[int] = ()
        self._queue: deque[tuple[Batch, list[Span]]] = deque()
        self._rows_before = 0
        """Logit rows of the step submitted last."""
        self._submitted = self._collected = 0

    def submit(self, batch: Batch) -> int:
        """Queue a batch. What it shows by itself is checked now, what the pages hold later."""
        self._queue.append((batch, check_batch(batch, self.capacity, self._rows_before)))
        self._rows_before = batch.num_rows
        self._submitted += 1
        return self._submitted

    def collect(self, ticket: int) -> Result:
        """Run the oldest batch. Each ticket once, in the order of submission."""
        expected = self._collected + 1
        require(ticket == expected <= self._submitted, f"ticket {ticket}, not {expected}")
        self._collected = ticket
        return self._run(*self._queue.popleft())

    def close(self) -> None:
        """Forget everything. Idempotent."""
        self._queue.clear()

    def _run(self, batch: Batch, spans: Sequence[Span]) -> Result:
        tokens = [t if t >= 0 else self._last_sampled[-1 - t] for t in batch.token_ids]
        for span in spans:
            self._append(span, tokens[span.first : span.first + span.count])
        rows = list(batch.logit_rows)
        answers: list[tuple[int, float]] = []
        for span in spans:
            visible = self._read(span)
            for row in range(len(answers), len(rows)):
                if rows[row] >= span.first + span.count:
                    break
                behind = span.first + span.count - 1 - rows[row]
                answers.append(self._sample(batch, row, visible[: len(visible) - behind]))
        self._last_sampled = [token for token, _ in answers]
        return Result(self._last_sampled, [logprob for _, logprob in answers])

    def _sample(self, batch: Batch, row: int, visible: Sequence[int]) -> tuple[int, float]:
        window = self.capacity.window
        params = RowParams(
            batch.temperature[row],
            batch.top_k[row],
            batch.top_p[row],
            batch.min_p[row],
            batch.uniforms[row],
        )
        return toy_token(visible[-window:] if window else visible, params, self.capacity.vocab_size)

    def _append(self, span: Span, tokens: Sequence[int]) -> None:
        """Store the new tokens of a sequence in its pages."""
        sees_previous = self.capacity.window is None or self.capacity.window > 1
        chain = 0
        if span.start and sees_previous:
            chain = self._chains[self._slot(span, span.start - 1)]
        for position, token in enumerate(tokens, span.start):
            slot = self._slot(span, position)
            chain = _chain(chain if sees_previous else 0, position, token)
            self._tokens[slot], self._positions[slot] = token, position
            self._chains[slot] = chain

    def _read(self, span: Span) -> list[int]:
        """The tokens that any of the step's queries can see, oldest first."""
        window = self.capacity.window
        low = 0 if window is None else max(0, span.start - window + 1)
        visible: list[int] = []
        chain = 0
        for position in range(low, span.end):
            slot = self._slot(span, position)
            token = self._tokens[slot]
            held = self._positions[slot]
            require(held >= 0, f"position {position} reads slot {slot}, which was never written")
            require(held == position, f"position {position} reads slot {slot}: position {held}")
            expected = _chain(0 if window == 1 else chain, position, token)
            chain = self._chains[slot]
            linked = chain == expected or (position == low and low > 0)
            require(linked, f"position {position} reads slot {slot}: another sequence's")
            visible.append(token)
        return visible

    def _slot(self, span: Span, position: int) -> int:
        index, offset = divmod(position, self.capacity.page_size)
        page = span.pages[index]
        require(page >= 0, f"position {position} is visible, but its page was freed")
        return page * self.capacity.page_size + offset


def _chain(previous: int, position: int, token: int) -> int:
    return mix64((previous * 3 + (position << 32) + token + 1) & _MASK)
