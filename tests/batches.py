"""Hand-made batches for executors: sequences on shuffled pages, any mix of rows per step."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.engine.batch import Batch, Capacity, float32, int32


class PagedSequences:
    """Feeds several token sequences to an executor and gathers the logits of every token."""

    def __init__(self, executor: Any, sequences: list[list[int]], seed: int = 0) -> None:
        self.executor, self.sequences = executor, sequences
        self.capacity: Capacity = executor.capacity
        self.done = [0] * len(sequences)
        self.logits: list[list[np.ndarray[Any, Any]]] = [[] for _ in sequences]
        free = list(np.random.default_rng(seed).permutation(self.capacity.num_pages))
        size = self.capacity.page_size
        self.pages = [[int(free.pop()) for _ in range(-(-len(s) // size))] for s in sequences]

    def step(self, counts: dict[int, int]) -> None:
        """Run `counts[s]` more tokens of each sequence s named, in one batch."""
        batch = Batch()
        size = self.capacity.page_size
        for s, count in counts.items():
            start, stop = self.done[s], self.done[s] + count
            batch.logit_rows.extend(range(len(batch.token_ids), len(batch.token_ids) + count))
            batch.token_ids.extend(self.sequences[s][start:stop])
            batch.positions.extend(range(start, stop))
            slots = (self.pages[s][p // size] * size + p % size for p in range(start, stop))
            batch.token_slots.extend(slots)
            pages = -(-stop // size)
            batch.page_indices.extend(self.pages[s][:pages])
            batch.qo_indptr.append(len(batch.token_ids))
            batch.page_indptr.append(len(batch.page_indices))
            batch.last_page_len.append(stop - (pages - 1) * size)
            self.done[s] = stop
        rows = self.executor.logits(batch)
        position = 0
        for s, count in counts.items():
            self.logits[s].extend(rows[position : position + count])
            position += count

    def result(self, s: int) -> np.ndarray[Any, Any]:
        """Logits [tokens so far, vocab] of sequence s."""
        return np.stack(self.logits[s])


def greedy(batch: Batch) -> Batch:
    """Fill the sampling columns for greedy decoding of every logit row."""
    rows = batch.num_rows
    batch.temperature, batch.top_k = float32([0] * rows), int32([0] * rows)
    batch.top_p, batch.min_p = float32([1] * rows), float32([0] * rows)
    batch.uniforms = float32([0.5] * rows)
    return batch
