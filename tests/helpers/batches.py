"""Feeds token sequences to executors on shuffled pages, with any mix of rows per step."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.engine.scheduler.manual_steps import ManualSteps


class PagedSequences:
    """Feeds several token sequences to an executor and gathers the logits of every token."""

    def __init__(self, executor: Any, sequences: list[list[int]], seed: int = 0) -> None:
        self.executor, self.sequences = executor, sequences
        self.steps = ManualSteps(executor.capacity, len(sequences))
        self.logits: list[list[np.ndarray[Any, Any]]] = [[] for _ in sequences]
        rng = np.random.default_rng(seed)
        for pool in self.steps.pools.pools:
            pages = pool.allocate(pool.num_pages)
            pool.free(int(page) for page in rng.permutation(pages))

    @property
    def done(self) -> list[int]:
        """Tokens of each sequence that are computed."""
        return self.steps.lengths

    def step(self, counts: dict[int, int]) -> None:
        """Run `counts[s]` more tokens of each sequence s named, in one batch."""
        tokens = {s: self.sequences[s][self.done[s] :][:count] for s, count in counts.items()}
        rows = np.asarray(self.executor.logits(self.steps.step(tokens, every_row=True)))
        position = 0
        for s, count in counts.items():
            self.logits[s].extend(rows[position : position + count])
            position += count

    def result(self, s: int) -> np.ndarray[Any, Any]:
        """Logits [tokens so far, vocab] of sequence s."""
        return np.stack(self.logits[s])
