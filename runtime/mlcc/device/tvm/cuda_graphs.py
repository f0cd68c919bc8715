"""Decode steps as CUDA graphs: sizes are rounded up to a bucket, which is replayed in one launch.

The library's `decode` captures its kernels at the first step of a bucket and replays them at later
ones (TVM's virtual machine does both). A captured graph holds addresses, and the step's buffer
never moves: a graph never sees another step's lengths, because lengths are what is written there.
So are the parameters and draws of sampling, which `decode_sample` has in its graph too.
Sizes are part of the bucket; attention, caches and sampling stop at the counts in the step's
header. Other kernels compute all rows of the bucket, so it has as many as a tile of the products.
"""

from __future__ import annotations

from typing import Any

from mlcc.engine.batch.batch import Batch, Capacity

_EXACT = 8
"""Rows up to which each number has buckets, as each reads its own experts of a mixture."""
_TILE = 128
"""Rows of the products' largest tile; the smaller ones are powers of two."""
_FEWEST = 64
"""Pages of the smallest bucket; short page lists share it."""

Bucket = tuple[int, ...]
"""Sizes that steps share, in the order of `StepLayout.sizes`."""


def bucket_of(batch: Batch, capacity: Capacity) -> Bucket | None:
    """The bucket of a pure decode step (a token and a logit row for each sequence), else None."""
    count, most = batch.num_sequences, capacity.layout.max_sequences
    if not count or batch.num_tokens != count or batch.num_rows != count:
        return None
    rows = min(_rows(count), most, capacity.layout.max_rows)
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
    """Runs decode steps through the library's `decode`, and `decode_sample` where it has that."""

    def __init__(self, decode: Any, sample: Any | None, logprobs: Any, capacity: Capacity) -> None:
        """logprobs: memory for those of a step, f32[max_rows]."""
        self._decode, self._sample, self._logprobs = decode, sample, logprobs
        self._capacity = capacity

    @property
    def samples(self) -> bool:
        """Whether the library samples within a graph; those of earlier compiles do not."""
        return self._sample is not None

    def bucket_of(self, batch: Batch) -> Bucket | None:
        """The step's bucket, or None if it is no decode step or its page list is too long."""
        return bucket_of(batch, self._capacity)

    def run(self, batch: Batch, step: Any, sizes: Any, *others: Any) -> Any:
        """Logits f32[rows of the batch, vocab]. `step` and `others` (last_sampled, caches, weights)
        must be the same tensors in every call; sizes are the bucket's."""
        logits = self._decode(step, sizes, *others)
        return logits._create_view((batch.num_rows, self._capacity.vocab_size))

    def sample(
        self, batch: Batch, step: Any, sizes: Any, last_sampled: Any, *others: Any
    ) -> list[Any]:
        """(tokens, logprobs) of the batch's rows. Tokens are written where the next step reads
        them, in `last_sampled`, and both again by the next step. Tensors are as in `run`."""
        assert self._sample is not None, "`samples` is asked first"
        written = [t._create_view((sizes[0],)) for t in (last_sampled, self._logprobs)]
        self._sample(step, sizes, last_sampled, *others, *written)
        return [t._create_view((batch.num_rows,)) for t in written]


def _rows(count: int) -> int:
    """Rows of the bucket for a step of `count` rows."""
    if count <= _EXACT:
        return count
    return min(_power(count), -(-count // _TILE) * _TILE)


def _power(count: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()
