"""Naive numpy twin of rows that the host writes in place of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.device.reference.caches import EmbeddingsOperator
from mlcc.device.reference.ops import Array


def inputs_embeds(rows: Array, ids: Array, *rest: Any) -> Array:
    """rest: x [n, width] if some ids are tokens; then width, `first`, the id of row 0, which of the
    parts of a row is read, of how many, and whether it is added to x."""
    x = [value for value in rest if isinstance(value, np.ndarray)]
    width, first, part, _, added = (*rest[len(x) :], 0, 1, 0)[:5]
    out = x[0].copy() if x else np.zeros((len(ids), width), rows.dtype)
    named = ids >= first
    found = rows[ids[named] - first, part * width : (part + 1) * width]
    out[named] = out[named] + found if added else found
    return out


def embedding_bag(taps: Array, table: Array) -> Array:
    """Sums of rows of the table: the first half of taps has their numbers, the second weights."""
    numbers, weights = np.split(taps, 2, axis=1)
    out: Array = (table[numbers.astype(np.int64)] * weights[:, :, None]).sum(1)
    return out


OPERATORS: dict[str, Callable[..., Any] | EmbeddingsOperator] = {
    "mlcc.inputs_embeds": EmbeddingsOperator(inputs_embeds),
    "mlcc.embedding_bag": embedding_bag,
}
