"""Naive numpy twins of operators that read rows which the host writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.device.reference.caches import EmbeddingsOperator, SourceOperator
from mlcc.device.reference.ops import Array
from mlcc.device.reference.step_view import StepView


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


def cross_attention(
    step: StepView, rows: Array, q: Array, layer: int, layers: int, count: int, scale: float
) -> Array:
    """q [n, heads, head_dim] over `count` rows each, from the step's `source_row` on."""
    _, heads, head_dim = q.shape
    out = np.empty_like(q)
    for i, first in enumerate(step.tokens("source_row")):
        found = rows[first : first + count].reshape(count, layers, 2, heads, head_dim)
        keys, values = found[:, layer, 0], found[:, layer, 1]
        scores = np.einsum("hd,rhd->hr", q[i], keys) * scale
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[i] = np.einsum("hr,rhd->hd", weights / weights.sum(1, keepdims=True), values)
    return out


def cross_weights(
    step: StepView,
    rows: Array,
    q: Array,
    tokens: Array,
    heads: str,
    layer: int,
    layers: int,
    count: int,
    scale: float,
) -> Array:
    """The same of the named heads, of q [r, all heads, head_dim] of some tokens: the weights
    [r, len(heads) * count]."""
    named, sources = [int(head) for head in heads.split(",")], step.tokens("source_row")[tokens]
    out = np.empty((len(q), len(named), count), q.dtype)
    for i, first in enumerate(sources):
        found = rows[first : first + count].reshape(count, layers, 2, *q.shape[1:])
        scores = np.einsum("hd,rhd->hr", q[i, named], found[:, layer, 0][:, named]) * scale
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out[i] = weights / weights.sum(1, keepdims=True)
    return out.reshape(len(q), -1)


def keep_hidden(step: StepView, rows: Array, x: Array, picked: Array, kept: Array) -> Array:
    """Rows of x; all of `kept` is kept behind the host's rows."""
    first = len(rows) - step.layout.max_tokens
    rows[first : first + len(kept), : kept.shape[1]] = kept
    return x[picked]


def hidden_states(step: StepView, rows: Array, ids: Array, width: int) -> Array:
    """The kept rows that the step names, or zeros."""
    named = step.tokens("hidden_row")
    first = len(rows) - step.layout.max_tokens
    return np.where(named[:, None] >= 0, rows[first + named, :width], 0).astype(rows.dtype)


OPERATORS: dict[str, Callable[..., Any] | EmbeddingsOperator | SourceOperator] = {
    "mlcc.inputs_embeds": EmbeddingsOperator(inputs_embeds),
    "mlcc.embedding_bag": embedding_bag,
    "mlcc.keep_hidden": SourceOperator(keep_hidden),
    "mlcc.hidden_states": SourceOperator(hidden_states),
    "mlcc.cross_attention": SourceOperator(cross_attention),
    "mlcc.cross_weights": SourceOperator(cross_weights),
}
