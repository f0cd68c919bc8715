"""Decode steps as CUDA graphs: a step is padded to a bucket of sizes and replayed in one launch.

The library's `decode` captures its kernels at the first step of a bucket and replays them at later
ones (TVM's virtual machine does both). A captured graph holds addresses, so every step's arrays are
written to the same buffers of the device: a graph never sees another step's lengths, because
lengths are what is written there. Sizes are part of the bucket, and what is beyond the step's own
is padding that computes nothing: rows without a sequence, sequences without tokens or pages.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.device.tensors import Tensors
from mlcc.engine.batch import Batch, Capacity

_FEWEST = 64
"""Pages of the smallest bucket; short page lists share it."""
_EMPTY = Batch()


@dataclass(frozen=True)
class Bucket:
    """Sizes that steps share: `rows` sequences of one token each, `pages` in their lists."""

    rows: int
    pages: int


def bucket_of(batch: Batch, capacity: Capacity) -> Bucket | None:
    """The bucket of a pure decode step (a token and a logit row for each sequence), else None."""
    count, longest = batch.num_sequences, longest_bucket(capacity)
    if not count or batch.num_tokens != count or batch.num_rows != count:
        return None
    if len(batch.page_indices) > longest.pages:
        return None
    pages = _power(max(len(batch.page_indices), _FEWEST))
    return Bucket(min(_power(count), longest.rows), min(pages, longest.pages))


def longest_bucket(capacity: Capacity) -> Bucket:
    """No more of either than the library plans memory for."""
    rows = capacity.max_batch
    return Bucket(rows, rows * -(-capacity.context // capacity.page_size))


def padded(batch: Batch, bucket: Bucket, page_size: int) -> list[array[int]]:
    """The arrays of `forward` up to last_page_len, at the bucket's sizes.

    A padded sequence has no tokens and no pages, which a full "last" page of none says; a padded
    token is written nowhere, and its logits are those of its own row.
    """
    count = batch.num_sequences
    more, tokens, pages = bucket.rows - count, batch.qo_indptr[-1], batch.page_indptr[-1]

    def longer(values: array[int], with_: Sequence[int]) -> array[int]:
        return values + array("i", with_)

    return [
        longer(batch.token_ids, [0] * more),
        longer(batch.positions, [0] * more),
        longer(batch.logit_rows, range(count, bucket.rows)),
        longer(batch.token_slots, [-1] * more),
        longer(batch.qo_indptr, [tokens] * more),
        longer(batch.page_indptr, [pages] * more),
        longer(batch.page_indices, [0] * (bucket.pages - len(batch.page_indices))),
        longer(batch.last_page_len, [page_size] * more),
    ]


class DecodeGraphs:
    """Runs decode steps through the library's `decode`, from buffers that never move."""

    def __init__(self, decode: Any, tensors: Tensors, capacity: Capacity) -> None:
        self._decode, self._tensors, self._capacity = decode, tensors, capacity
        longest = longest_bucket(capacity)
        self._stage(_EMPTY, longest)  # room for the longest: no buffer grows later

    def bucket_of(self, batch: Batch) -> Bucket | None:
        """The step's bucket, or None if it is no decode step or its page list is too long."""
        return bucket_of(batch, self._capacity)

    def run(self, batch: Batch, bucket: Bucket, *others: Any) -> Any:
        """Logits f32[rows of the batch, vocab]. `others` (last_sampled, kv, weights) must be the
        same tensors in every call."""
        logits = self._decode(*self._stage(batch, bucket), *others)
        return logits._create_view((batch.num_rows, self._capacity.vocab_size))

    def _stage(self, batch: Batch, bucket: Bucket) -> list[Any]:
        """In buffers of their own: those of other steps may grow, and then they move."""
        arrays = padded(batch, bucket, self._capacity.page_size)
        return [self._tensors.stage(("decode", i), values) for i, values in enumerate(arrays)]


def _power(count: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()
