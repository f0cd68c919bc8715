"""Batches for the tests of paged attention: ragged, on shuffled pages, all else poisoned with NaN,
so that one read too many spoils the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc_compiler.layout import AttentionShape, KvLayout

MIXED = ((1, 1), (1, 16), (5, 5), (1, 17), (0, 9), (1, 200), (40, 130), (64, 64), (3, 300), (0, 0))
"""(queries, keys) of each sequence."""


@dataclass(frozen=True)
class Case:
    """One compiled kernel."""

    heads: int = 9
    kv_heads: int = 3
    dim: int = 64
    page: int = 16
    window: int | None = None
    softcap: float | None = None
    dtype: str = "float32"

    @property
    def scale(self) -> float:
        return float(self.dim**-0.5)

    @property
    def shape(self) -> AttentionShape:
        numbers = (self.scale, self.window, self.softcap)
        return AttentionShape(self.heads, self.kv_heads, self.dim, *numbers)

    @property
    def layout(self) -> KvLayout:
        return KvLayout(self.page, self.dtype, 1, self.kv_heads, self.dim)

    @property
    def arguments(self) -> tuple[AttentionShape, KvLayout]:
        """Of the kernel's factory, after the device."""
        return self.shape, self.layout


def batch(case: Case, sequences: Any, seed: int = 0, padding: int = 0) -> list[Any]:
    """The kernel's inputs; pages behind every query's window are -1."""
    rng = np.random.default_rng(seed)
    counts = [-(-keys // case.page) for _, keys in sequences]
    free = rng.permutation(sum(counts) + 7).tolist()
    pages = np.full((len(free), 2, case.kv_heads, case.page, case.dim), np.nan, case.dtype)
    qo, indptr, indices, last = [0], [0], [], []
    for (queries, keys), count in zip(sequences, counts, strict=True):
        behind = 0 if case.window is None else max(0, keys - queries + 1 - case.window)
        for i in range(count):
            if (i + 1) * case.page <= behind:
                indices.append(-1)
                continue
            indices.append(free.pop())
            used = min(case.page, keys - i * case.page)
            pages[indices[-1], :, :, :used] = rng.standard_normal(
                (2, case.kv_heads, used, case.dim)
            )
        qo.append(qo[-1] + queries)
        indptr.append(len(indices))
        last.append(keys - (count - 1) * case.page)
    q = rng.standard_normal((qo[-1] + padding, case.heads, case.dim)).astype(np.float32) * 2
    return [q, pages, *(np.array(a, np.int32) for a in (qo, indptr, indices, last))]


def alone(inputs: list[Any], s: int) -> list[Any]:
    """The inputs of a batch of one sequence of a batch."""
    q, pages, qo, indptr, indices, last = inputs
    own = indices[indptr[s] : indptr[s + 1]]
    one = [np.array(a, np.int32) for a in ([0, qo[s + 1] - qo[s]], [0, len(own)])]
    return [q[qo[s] : qo[s + 1]], pages, *one, own, last[s : s + 1]]
