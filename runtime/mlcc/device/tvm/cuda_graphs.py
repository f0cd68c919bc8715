"""Decode steps as CUDA graphs: sizes are rounded up to a bucket, which is replayed in one launch.

The library's `decode` captures its kernels at the first step of a bucket and replays them at later
ones (TVM's virtual machine does both). A captured graph holds addresses, and the step's buffer
never moves: a graph never sees another step's lengths, because lengths are what is written there.
Sizes are part of the bucket; kernels stop at the counts in the step's header, so nothing is padded.
"""

from __future__ import annotations

from typing import Any

from mlcc.engine.batch.batch import Batch, Capacity

_FEWEST = 64
"""Pages of the smallest bucket; short page lists share it."""

Bucket = tuple[int, ...]
"""Sizes that steps share, in the order of `StepLayout.sizes`."""


def bucket_of(batch: Batch, capacity: Capacity) -> Bucket | None:
    """The bucket of a pure decode step (a token and a logit row for each sequence), else None."""
    count, most = batch.num_sequences, capacity.layout.max_sequences
    if not count or batch.num_tokens != count or batch.num_rows != count:
        return None
    rows = min(_power(count), most, capacity.layout.max_rows)
    _, _, _, *pages = batch.sizes
    bounds = [
        most for most, g in zip(capacity.most_pages, capacity.groups, strict=True) if g.has_pages
    ]
    if count > rows or any(used > bound for used, bound in zip(pages, bounds, strict=True)):
        return None
    rounded = (
        min(_power(max(used, _FEWEST)), bound) for used, bound in zip(pages, bounds, strict=True)
    )
    return (rows, rows, rows, *rounded)


class DecodeGraphs:
    """Runs decode steps through the library's `decode`."""

    def __init__(self, decode: Any, capacity: Capacity) -> None:
        self._decode, self._capacity = decode, capacity

    def bucket_of(self, batch: Batch) -> Bucket | None:
        """The step's bucket, or None if it is no decode step or its page list is too long."""
        return bucket_of(batch, self._capacity)

    def run(self, batch: Batch, step: Any, sizes: Any, *others: Any) -> Any:
        """Logits f32[rows of the batch, vocab]. `step` and `others` (last_sampled, caches, weights)
        must be the same tensors in every call; sizes are the bucket's."""
        logits = self._decode(step, sizes, *others)
        return logits._create_view((batch.num_rows, self._capacity.vocab_size))


def _power(count: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()
