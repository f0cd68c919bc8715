"""Naive numpy twins of a Conformer's operators: attention and convolution over a row's past."""

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


OPERATORS: dict[str, Callable[..., Any]] = {
    "mlcc.relative_attention": relative_attention,
    "mlcc.depthwise_conv": depthwise_conv,
}
