"""The toy executor: a device whose next token is a hash of the prefix *as its caches hold it*.

An exact oracle. Where a model would store keys and values, or a recurrent state, the toy stores
tokens or a hash of all tokens so far, in every cache group, and reads back what a query can see. So
every fault of scheduling, paging, windows, states, preemption or pipelining gives another token, or
raises: each slot also holds its position and a digest of all before it, which tell stale contents
from the sequence's own. `logits.py` defines the logits of that token, so that they can be adjusted
and ranked.

Not a model, not fast, and runs anywhere (standard library only).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from mlcc.device.check_batch import (
    Span,
    check_adjustments,
    check_batch,
    check_embeddings,
    check_pages,
    require,
)
from mlcc.device.toy.caches import HashStates, TokenPages, chain_of, words
from mlcc.device.toy.logits import ABOVE, adjust, choose, likeliest, toy_logits
from mlcc.device.toy.mtp import ToyMtp
from mlcc.engine.batch.adjustments import AdjustedRow, Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result, TopLogprobs
from mlcc.engine.batch.filters import NO_FILTERS, FilterParams
from mlcc.engine.batch.tables import CacheGroup
from mlcc.engine.lora import AdapterMatrix


class RowParams(NamedTuple):
    """The sampling parameters of one logit row, each as float32 holds it."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    uniform: float
    filters: FilterParams = NO_FILTERS


def toy_view(tokens: Sequence[int], group: CacheGroup) -> list[int]:
    """What a query after these tokens sees in a group: all, a window, or a hash of all."""
    if group.kind == "state":
        state = 0
        for position, token in enumerate(tokens):
            state = chain_of(state, position, token)
        return words(state)
    return list(tokens if group.window is None else tokens[-group.window :])


def token_of_row(row: bytes) -> int:
    """The token that the toy sees in the place of a row of embeddings: less than 0, as no other."""
    return -1 - (int.from_bytes(blake2b(row, digest_size=4).digest(), "little") >> 1)


def toy_token(
    views: Sequence[Sequence[int]], params: RowParams, vocab_size: int
) -> tuple[int, float]:
    """The toy's next token from what each group shows, and its made-up log-probability.

    Greedy depends on the tokens alone; sampling on every parameter, so that none can be mixed up.
    """
    digest = blake2b(digest_size=8)
    first, *others = views
    digest.update(array("i", first).tobytes())
    for view in others:
        digest.update(array("i", [-len(view), *view]).tobytes())
    if params.temperature > 0:
        floats = (params.temperature, params.top_p, params.min_p, params.uniform)
        digest.update(array("f", floats).tobytes() + array("i", [params.top_k]).tobytes())
        if params.filters != NO_FILTERS:
            digest.update(array("f", params.filters).tobytes())
    value = int.from_bytes(digest.digest(), "little")
    return value % vocab_size, -(value >> 40) / 2.0**24


class ToyExecutor:
    """An Executor over integers. Raises BadBatchError at the first violation of the contract.

    Steps wait in a queue and run as late as a device may: in order, each when it is collected. So a
    plan made meanwhile must hold for steps that have not run.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.depth = 2  # so that planning ahead is exercised
        pools = zip(capacity.groups, capacity.pools, strict=True)
        self._caches = [
            TokenPages(group, size) if group.has_pages else HashStates(size)
            for group, size in pools
        ]
        self._last_sampled: Sequence[int] = ()
        self._queue: deque[tuple[Batch, list[Span], dict[int, AdjustedRow], list[int]]] = deque()
        self._embeddings: dict[int, int] = {}
        """Slot -> the token that stands for the row in it."""
        self._mtp = ToyMtp(capacity)
        self._adapters: dict[int, int] = {}
        """Contents of the LoRA slots once all submitted steps are done."""
        self._rows_before = 0
        """Logit rows of the step submitted last."""
        self._submitted = self._collected = 0

    def step_buffer(self) -> None:
        """None: batches bring their own memory."""

    def adjustments_buffer(self) -> None:
        """None: adjustments bring their own memory."""

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """Queue a batch. Its own contents are checked now, the caches when it runs."""
        spans = check_batch(batch, self.capacity, self._rows_before)
        adjusted = {}
        if adjustments is not None:
            check_adjustments(adjustments, batch, self.capacity, self._rows_before)
            adjusted = {row.row: row for row in adjustments.rows()}
        self._queue.append((batch, spans, adjusted, self._adapters_of(batch)))
        self._rows_before = batch.num_rows
        self._submitted += 1
        return self._submitted

    def collect(self, ticket: int) -> Result:
        """Run the oldest batch. Each ticket once, in the order of submission."""
        expected = self._collected + 1
        require(ticket == expected <= self._submitted, f"ticket {ticket}, not {expected}")
        self._collected = ticket
        return self._run(*self._queue.popleft())

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Store a hash of the matrices, on which everything computed with the adapter depends."""
        digest = blake2b(digest_size=8)
        for matrix in matrices:
            digest.update(repr(matrix).encode())
        self._adapters[slot] = int.from_bytes(digest.digest(), "little")

    @property
    def page_bytes(self) -> tuple[int, ...]:
        """Of each group: a token's slot times the page size, or a state."""
        return tuple(cache.page_bytes for cache in self._caches)

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """Contents of pages or states."""
        self._check_pages(group, ids)
        return b"".join(self._caches[group].read(page) for page in ids)

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Write contents to pages or states."""
        self._check_pages(group, ids, len(data))
        size = self.page_bytes[group]
        for i, page in enumerate(ids):
            self._caches[group].write(page, data[i * size : (i + 1) * size])

    def write_embeddings(self, slots: Sequence[int], rows: bytes) -> None:
        """Store rows, of any width, each as a token that its bytes decide."""
        require(not self._queue, "embeddings are written while steps wait")
        width = len(rows) // len(slots)
        check_embeddings(self.capacity, slots, width // 4, len(rows))
        for i, slot in enumerate(slots):
            self._embeddings[slot] = token_of_row(rows[i * width : (i + 1) * width])

    def _check_pages(self, group: int, ids: Sequence[int], size: int | None = None) -> None:
        require(not self._queue, "pages are moved while steps wait")
        check_pages(self.capacity, group, ids, self.page_bytes, size)

    def close(self) -> None:
        """Free everything. Idempotent."""
        self._queue.clear()

    def _adapters_of(self, batch: Batch) -> list[int]:
        """Hash of each sequence's adapter; 0 = none."""
        if not batch.layout.adapter_slots:
            return [0] * batch.num_sequences
        slots = list(map(int, batch.column(batch.layout.sequences, "adapter")))[:-1]
        for slot in slots:
            require(slot < 0 or slot in self._adapters, f"slot {slot} holds no adapter")
        return [self._adapters[slot] if slot >= 0 else 0 for slot in slots]

    def _run(
        self,
        batch: Batch,
        spans: Sequence[Span],
        adjusted: Mapping[int, AdjustedRow],
        adapters: Sequence[int],
    ) -> Result:
        layout = batch.layout
        columns = (batch.column(layout.copies, name) for name in layout.copies.columns)
        for g, source, to in zip(*columns, strict=True):
            self._caches[int(g)].copy(int(source), int(to))
            self._mtp.copy(int(g), int(source), int(to))
        ids = map(int, batch.column(layout.tokens, "id"))
        tokens = [t if t >= 0 else self._last_sampled[-1 - t] for t in ids]
        vocab = self.capacity.vocab_size
        tokens = [t if t < vocab else self._embeddings[t - vocab] for t in tokens]
        seen = self._mtp.run(batch, spans, tokens) if batch.mtp else None
        views = seen or self._views(spans, tokens, adapters)
        if layout.has_mtp:
            self._mtp.keep(views)
        sampled = self._sample(batch, spans, views)
        sampled, top = self._choose(batch, sampled, adjusted)
        self._last_sampled = [token for token, _ in sampled]
        return Result(self._last_sampled, [p for _, p in sampled], top)

    def _views(
        self, spans: Sequence[Span], tokens: Sequence[int], adapters: Sequence[int]
    ) -> list[list[list[list[int]]]]:
        """Of each sequence, by group, what each of its tokens sees."""
        views = []
        for span, adapter in zip(spans, adapters, strict=True):
            mine = tokens[span.first : span.first + span.count]
            seen = [c.run(span, g, mine, adapter) for g, c in enumerate(self._caches)]
            views.append(seen + [[words(adapter)] * span.count] * bool(adapter))
        return views

    def _choose(
        self,
        batch: Batch,
        sampled: list[tuple[int, float]],
        adjusted: Mapping[int, AdjustedRow],
    ) -> tuple[list[tuple[int, float]], list[TopLogprobs] | None]:
        """Sampled tokens of rows, given their hashes, and their likeliest tokens."""
        wanted = batch.column(batch.layout.rows, "top_logprobs")
        given = batch.column(batch.layout.rows, "given")
        top: list[TopLogprobs] = []
        for i, (count, token) in enumerate(zip(wanted, map(int, given), strict=True)):
            # as most are: many tests run many steps
            if not count and token < 0 and i not in adjusted:
                top.append([])
                continue
            logits = toy_logits(*sampled[i], self.capacity.vocab_size)
            if i in adjusted:
                adjust(logits, adjusted[i], self._last_sampled)
            sampled[i] = choose(logits) if token < 0 else (token, logits[token] - ABOVE)
            top.append(likeliest(logits, int(count)))
        return sampled, top if batch.top_logprobs else None

    def _sample(
        self, batch: Batch, spans: Sequence[Span], views: Sequence[Sequence[list[list[int]]]]
    ) -> list[tuple[int, float]]:
        table = batch.layout.rows
        columns = [batch.column(table, name) for name in table.columns]
        owners = batch.column(batch.layout.tokens, "sequence")
        sampled = []
        for token, *params in zip(*columns, strict=True):
            s = int(owners[int(token)])
            behind = [view[int(token) - spans[s].first] for view in views[s]]
            temperature, top_k, top_p, min_p, uniform, _, _, *filters = params
            row = RowParams(temperature, int(top_k), top_p, min_p, uniform, FilterParams(*filters))
            sampled.append(toy_token(behind, row, self.capacity.vocab_size))
        return sampled
