"""Steps without a scheduler: for evaluation, profiles, benchmarks and tests."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from mlcc.engine.batch.batch import Batch, BatchWriter, Cache, Capacity
from mlcc.engine.kv_cache.cache_manager import CacheManager


class ManualSteps:
    """`count` sequences, none of which is preempted. The caller keeps to the capacity."""

    def __init__(self, capacity: Capacity, count: int = 1) -> None:
        self.capacity = capacity
        self.pools = CacheManager(capacity)
        self.lengths = [0] * count
        """Tokens of each sequence so far."""
        self._caches = [self.pools.empty() for _ in range(count)]

    def skip(self, tokens: int) -> None:
        """Count tokens of each sequence as computed: for timing only."""
        self.lengths = [length + tokens for length in self.lengths]

    def step(
        self,
        tokens: Mapping[int, Sequence[int]],
        *,
        every_row: bool = False,
        top_logprobs: int = 0,
        prompts: bool = False,
    ) -> Batch:
        """A greedy step that adds these tokens to the given sequences, with logits after the last
        token of each, or after every token. prompts: whether they are tokens of prompts."""
        held = [self._room(s, len(ids)) for s, ids in tokens.items()]
        writer = BatchWriter(self.capacity.layout)
        for (s, ids), caches in zip(tokens.items(), held, strict=True):
            first = writer.sequence(ids, self.lengths[s], caches)
            for i in range(0 if every_row else len(ids) - 1, len(ids)):
                writer.row(first + i, top_logprobs=top_logprobs)
            self.pools.advance(caches)
            self.lengths[s] += len(ids)
        return writer.finish(len(tokens) if prompts else 0)

    def mtp_step(self, tokens: Sequence[int], position: int, hidden_rows: array[int]) -> Batch:
        """A step of `forward_mtp` for the first sequence, with logits after every token. Each token
        follows one of the positions from `position` on; hidden_rows: the column of that name."""
        writer = BatchWriter(self.capacity.layout, mtp=True)
        caches = self._caches[0]
        self.pools.grow(caches, position + len(tokens))
        first = writer.sequence(tokens, position, caches, columns={"hidden_row": hidden_rows})
        for i in range(len(tokens)):
            writer.row(first + i)
        return writer.finish()

    def _room(self, s: int, count: int) -> list[Cache]:
        caches, start = self._caches[s], self.lengths[s]
        self.pools.slide(caches, start)
        self.pools.grow(caches, start + count)
        return caches
