"""Naive numpy twins of a Conformer's operators: attention, convolution and norms over a row's past,
and the row behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
"""A numpy array; numpy's own type is lost in every arithmetic expression."""


def relative_attention(
    q: Array, k: Array, v: Array, bias: Array, positions: Array, heads: int, cap: float
) -> Array:
    """q, k, v [n, heads * head_dim], bias [window, heads * head_dim], positions [n] -> as q."""
    n, width = q.shape
    by_head = (heads, width // heads)
    out = np.zeros((n, *by_head), q.dtype)
    for i, position in enumerate(positions):
        past = np.arange(min(int(position) + 1, len(bias)))
        keys = (k[i - past] + bias[past]).reshape(-1, *by_head)
        scores = np.einsum("hd,phd->ph", q[i].reshape(by_head), keys)
        scores = np.tanh(scores / cap) * cap
        shares = np.exp(scores - scores.max(axis=0))
        values = v[i - past].reshape(-1, *by_head)
        out[i] = np.einsum("ph,phd->hd", shares / shares.sum(axis=0), values)
    return out.reshape(n, width)


def depthwise_conv(x: Array, weight: Array, positions: Array) -> Array:
    """x [n, channels], weight [taps, channels], positions [n] -> as x."""
    out = np.zeros_like(x)
    for i, position in enumerate(positions):
        past = np.arange(min(int(position) + 1, len(weight)))
        out[i] = (x[i - past] * weight[len(weight) - 1 - past]).sum(axis=0)
    return out


def group_moments(x: Array, present: Array, groups: int) -> Array:
    """x [n, groups * places * channels], present [n, groups * places] -> [n, groups * 3]: of each
    group the count of numbers that are present, their mean, and the sum of squared differences."""
    here = present.reshape(len(x), groups, -1, 1)
    values = x.reshape(len(x), groups, here.shape[2], -1)
    count = here.sum(axis=(2, 3)) * values.shape[3]
    mean = (values * here).sum(axis=(2, 3)) / np.maximum(count, 1)
    squares = ((values - mean[..., None, None]) ** 2 * here).sum(axis=(2, 3))
    return np.stack([count, mean, squares], axis=-1).reshape(len(x), -1).astype(x.dtype)


def cumulative_norm(
    x: Array, present: Array, moments: Array, weight: Array, positions: Array, eps: float
) -> Array:
    """x and present as in `group_moments`, moments its result, weight [channels], positions [n] ->
    as x."""
    parts = moments.reshape(len(x), -1, 3)
    here = present.reshape(*parts.shape[:2], -1, 1)
    values = x.reshape(*here.shape[:3], len(weight))
    out = np.zeros_like(values)
    count = total = squares = 0.0
    for i, position in enumerate(positions):
        if position == 0:
            count = total = squares = 0.0
        for g, (numbers, mean, own) in enumerate(parts[i]):
            count, total = count + numbers, total + numbers * mean
            so_far = total / max(count, 1)
            squares += own + numbers * (mean - so_far) ** 2
            scale = weight / np.sqrt(squares / max(count, 1) + eps)
            out[i, g] = (values[i, g] - so_far) * scale * here[i, g]
    return out.reshape(x.shape)


def next_rows(x: Array, positions: Array) -> Array:
    """x [n, width], positions [n] -> as x."""
    out = np.zeros_like(x)
    followed = np.flatnonzero(positions[1:] == positions[:-1] + 1)
    out[followed] = x[followed + 1]
    return out


OPERATORS: dict[str, Callable[..., Any]] = {
    "mlcc.relative_attention": relative_attention,
    "mlcc.depthwise_conv": depthwise_conv,
    "mlcc.group_moments": group_moments,
    "mlcc.cumulative_norm": cumulative_norm,
    "mlcc.next_rows": next_rows,
}
