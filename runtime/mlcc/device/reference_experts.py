"""The naive numpy twins of a mixture of experts, beside those of `reference_ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
"""A numpy array; numpy's own type is lost in every arithmetic expression."""


def route(logits: Array, k: int, score: str, normalise: int, scale: float) -> tuple[Array, Array]:
    """The k largest of each row of logits [n, experts], the first of equals: which [n, k], and
    their weights [n, k]."""
    choice = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    if score == "softmax":
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    else:
        scores = 1 / (1 + np.exp(-logits))
    weights = np.take_along_axis(scores, choice, axis=1)
    if normalise:
        weights /= weights.sum(axis=1, keepdims=True)
    return choice.astype(np.int32), weights * logits.dtype.type(scale)


def expert_linear(x: Array, choice: Array, *weights: Array, experts: int) -> Array:
    """Row by row: the products with the first matrices of its experts, then with their second.

    x [n, in] or [n, k * in], choice [n, k], weights each [out, in].
    """
    tokens, k = choice.shape
    (out, width), kinds = weights[0].shape, len(weights) // experts
    y = np.empty((tokens, kinds, k, out), x.dtype)
    for i in range(tokens):
        parts = np.broadcast_to(x[i].reshape(-1, width), (k, width))
        for kind in range(kinds):
            for j, expert in enumerate(choice[i]):
                y[i, kind, j] = weights[kind * experts + expert] @ parts[j]
    return y.reshape(tokens, kinds * k * out)


def combine(x: Array, weights: Array) -> Array:
    """The weighted sum of the k parts of each row: x [n, k * hidden], weights [n, k]."""
    tokens, k = weights.shape
    return np.einsum("nkh,nk->nh", x.reshape(tokens, k, x.shape[1] // k), weights)


OPERATORS: dict[str, Callable[..., Any]] = {
    "mlcc.route": route,
    "mlcc.expert_linear": lambda *a: expert_linear(*a[:-2], experts=a[-2]),
    "mlcc.combine": combine,
}
