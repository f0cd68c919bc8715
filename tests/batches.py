"""Hand-made batches for executors: sequences on shuffled pages, any mix of rows per step."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.engine.batch import Batch, BatchWriter, Capacity
from mlcc.engine.caches import CachePools, page_counts


def batch_of(
    capacity: Capacity, parts: list[tuple[list[int], int, Any]], every_row: bool = False
) -> Batch:
    """A greedy step of (tokens, position of the first, caches), with the last token's row of each
    part, or with all of them."""
    writer = BatchWriter(capacity.layout, page_counts([caches for _, _, caches in parts]))
    for tokens, start, caches in parts:
        first = writer.sequence(tokens, start, caches)
        for i in range(0 if every_row else len(tokens) - 1, len(tokens)):
            writer.row(first + i)
    return writer.finish()


class PagedSequences:
    """Feeds several token sequences to an executor and gathers the logits of every token."""

    def __init__(self, executor: Any, sequences: list[list[int]], seed: int = 0) -> None:
        self.executor, self.sequences = executor, sequences
        self.capacity: Capacity = executor.capacity
        self.done = [0] * len(sequences)
        self.logits: list[list[np.ndarray[Any, Any]]] = [[] for _ in sequences]
        self.pools = CachePools(self.capacity)
        rng = np.random.default_rng(seed)
        for pool in self.pools.pools:
            pages = pool.allocate(pool.num_pages)
            pool.free(int(page) for page in rng.permutation(pages))
        self.caches = [self.pools.empty() for _ in sequences]

    def step(self, counts: dict[int, int]) -> None:
        """Run `counts[s]` more tokens of each sequence s named, in one batch."""
        parts = []
        for s, count in counts.items():
            start, stop = self.done[s], self.done[s] + count
            self.pools.slide(self.caches[s], start)
            self.pools.grow(self.caches[s], stop)
            parts.append((self.sequences[s][start:stop], start, self.caches[s]))
            self.done[s] = stop
        rows = self.executor.logits(batch_of(self.capacity, parts, every_row=True))
        for s in counts:
            self.pools.advance(self.caches[s])
        position = 0
        for s, count in counts.items():
            self.logits[s].extend(rows[position : position + count])
            position += count

    def result(self, s: int) -> np.ndarray[Any, Any]:
        """Logits [tokens so far, vocab] of sequence s."""
        return np.stack(self.logits[s])
