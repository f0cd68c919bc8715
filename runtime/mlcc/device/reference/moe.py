"""Naive numpy twins of mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.device.reference import ops

Array = Any
"""A numpy array; numpy's own type is lost in every arithmetic expression."""


def route(logits: Array, k: int, score: str, normalise: int, scale: float) -> tuple[Array, Array]:
    """The k largest of each row of logits [n, experts], the first of equals: indices [n, k] and
    weights [n, k]."""
    choice = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(_scores(logits, score), choice, axis=1)
    if normalise:
        weights /= weights.sum(axis=1, keepdims=True)
    return choice.astype(np.int32), weights * logits.dtype.type(scale)


def route_corrected(
    logits: Array,
    bias: Array,
    k: int,
    score: str,
    normalise: int,
    scale: float,
    least: float,
    groups: int,
    kept: int,
    best: int = 2,
    added: float = 0.0,
) -> tuple[Array, Array]:
    """Routing by score + bias; the weights are without the bias. Experts are chosen from the `kept`
    groups with the largest sum of two best scores, or the largest best score."""
    scores = _scores(logits, score)
    order = scores + bias.reshape(-1)
    tokens, experts = logits.shape
    if groups > 1:
        parted = order.reshape(tokens, groups, experts // groups)
        worth = np.sort(parted, axis=2)[:, :, -best:].sum(axis=2)
        dropped = np.argsort(-worth, axis=1, kind="stable")[:, kept:]
        parted = parted.copy()
        np.put_along_axis(parted, dropped[:, :, None], -np.inf, axis=1)
        order = parted.reshape(tokens, experts)
    choice = np.argsort(-order, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(scores, choice, axis=1)
    if normalise:
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), least) + added
    return choice.astype(np.int32), weights * logits.dtype.type(scale)


def _scores(logits: Array, score: str) -> Array:
    """Softmax over all experts, or the sigmoid of each."""
    if score == "sigmoid":
        return ops.sigmoid(logits)
    scores = np.exp(logits - logits.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def expert_linear(x: Array, choice: Array, *weights: Array, experts: int) -> Array:
    """Row by row, products with the matrices of the row's experts. x [n, in] or [n, k * in], choice
    [n, k], weights each [out, in]."""
    tokens, k = choice.shape
    (out, width), kinds = weights[0].shape, len(weights) // experts
    y = np.empty((tokens, kinds, k, out), x.dtype)
    for i in range(tokens):
        parts = np.broadcast_to(x[i].reshape(-1, width), (k, width))
        for kind in range(kinds):
            for j, expert in enumerate(choice[i]):
                y[i, kind, j] = weights[kind * experts + expert] @ parts[j]
    return y.reshape(tokens, kinds * k * out)


def add_expert_bias(x: Array, choice: Array, bias: Array, experts: int, kinds: int) -> Array:
    """x [n, kinds * k * out] with the biases [kinds * experts * out] of each token's experts."""
    tokens, k = choice.shape
    out = bias.size // experts // kinds
    own = bias.reshape(kinds, experts, out)[:, choice].swapaxes(0, 1)
    return x + own.reshape(tokens, kinds * k * out)


def scale_chosen(weights: Array, choice: Array, factors: Array) -> Array:
    """weights [n, k], each times the factor of its expert, of `factors` [experts]."""
    return weights * factors[choice]


def clamped_swiglu(x: Array, alpha: float, limit: float) -> Array:
    """gate * sigmoid(alpha * gate) * (up + 1), with clamped gates and ups, which lie side by
    side."""
    gate, up = np.split(x, 2, axis=-1)
    gate = np.minimum(gate, x.dtype.type(limit))
    up = np.clip(up, x.dtype.type(-limit), x.dtype.type(limit))
    return gate * ops.sigmoid(x.dtype.type(alpha) * gate) * (up + 1)


def combine(x: Array, weights: Array) -> Array:
    """The weighted sum of the k parts of each row: x [n, k * hidden], weights [n, k]."""
    tokens, k = weights.shape
    return np.einsum("nkh,nk->nh", x.reshape(tokens, k, x.shape[1] // k), weights)


OPERATORS: dict[str, Callable[..., Any]] = {
    "mlcc.route": route,
    "mlcc.route_corrected": route_corrected,
    "mlcc.expert_linear": lambda *a: expert_linear(*a[:-2], experts=a[-2]),
    "mlcc.add_expert_bias": add_expert_bias,
    "mlcc.scale_chosen": scale_chosen,
    "mlcc.clamped_swiglu": clamped_swiglu,
    "mlcc.combine": combine,
}
