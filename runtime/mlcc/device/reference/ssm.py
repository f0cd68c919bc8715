"""Naive numpy twins of operators with a state per sequence, token by token as in their papers, and
of those that reorder their inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.device.reference.caches import CachedOperator, LayerCache
from mlcc.device.reference.ops import ACTIVATIONS
from mlcc.device.reference.step_view import StepView

Array = Any
"""A numpy array; numpy's own type is lost in every arithmetic expression."""


def take_parts(x: Array, groups: int, parts: str) -> Array:
    """Columns begin .. begin + size - 1 of each of `groups` equal groups, part after part."""
    grouped = x.reshape(len(x), groups, -1)
    taken = [grouped[:, :, begin : begin + size] for begin, size in json.loads(parts)]
    return np.concatenate([part.reshape(len(x), -1) for part in taken], axis=1)


def side_by_side(*parts: Array) -> Array:
    """Concatenate columns."""
    return np.concatenate(parts, axis=1)


def causal_conv(
    step: StepView,
    cache: LayerCache,
    x: Array,
    weight: Array,
    *biases: Array,
    activation: str,
    **sizes: int,
) -> Array:
    """activation of the convolution of x [n, channels] with weight [channels, 1, taps], and an
    optional bias. The inputs that the next tokens see are stored in states [slots, taps - 1,
    channels]."""
    out, states = np.zeros_like(x), cache.tensors["conv"]
    for begin, end, state, slot in _sequences(step, cache.group, states):
        window = np.concatenate([state, x[begin:end]])
        taps = weight.shape[2]
        for t in range(begin, end):
            total = (window[t - begin : t - begin + taps] * weight[:, 0].T).sum(axis=0)
            out[t] = ACTIVATIONS[activation](sum(biases, total))
        states[slot] = window[len(window) - (taps - 1) :]
    return out


def delta_rule(
    step: StepView,
    cache: LayerCache,
    qkv: Array,
    b: Array,
    a: Array,
    a_log: Array,
    dt_bias: Array,
    *,
    k_heads: int,
    eps: float,
    **sizes: int,
) -> Array:
    """The gated delta rule: qkv [n, channels], states [slots, v_heads, v_dim, k_dim] -> [n,
    v_heads, v_dim]."""
    states = cache.tensors["delta"]
    _, v_heads, v_dim, k_dim = states.shape
    keys = k_heads * k_dim
    shapes = [(k_heads, k_dim), (k_heads, k_dim), (v_heads, v_dim)]
    parts = np.split(qkv, [keys, 2 * keys], axis=1)
    q, k, v = (p.reshape(len(qkv), *shape) for p, shape in zip(parts, shapes, strict=True))
    beta = 1 / (1 + np.exp(-b))
    speeds = np.logaddexp(a + dt_bias, 0).reshape(len(qkv), v_heads, -1)  # of each, or of each key
    decay = np.exp(-np.exp(a_log)[:, None] * speeds)
    out = np.zeros((len(qkv), v_heads, v_dim), qkv.dtype)
    for begin, end, state, slot in _sequences(step, cache.group, states):
        for h in range(v_heads):
            matrix, of = state[h].copy(), h * k_heads // v_heads
            for t in range(begin, end):
                query, key = (y[t, of] / np.sqrt((y[t, of] ** 2).sum() + eps) for y in (q, k))
                matrix *= decay[t, h]
                matrix += np.outer(beta[t, h] * (v[t, h] - matrix @ key), key)
                out[t, h] = matrix @ query / np.sqrt(qkv.dtype.type(k_dim))
            states[slot, h] = matrix
    return out


def selective_scan(
    step: StepView,
    cache: LayerCache,
    xbc: Array,
    dt: Array,
    a_log: Array,
    skip: Array,
    dt_bias: Array,
    *,
    groups: int,
    shortest: float,
    longest: float | None,
    **sizes: int,
) -> Array:
    """The scan of Mamba 2: xbc [n, channels], dt [n, heads], states [slots, heads, head_dim, state]
    -> [n, heads, head_dim]."""
    states = cache.tensors["scan"]
    _, heads, head_dim, state = states.shape
    inner = heads * head_dim
    x, b, c = np.split(xbc, [inner, inner + groups * state], axis=1)
    x = x.reshape(len(xbc), heads, head_dim)
    b, c = (y.reshape(len(xbc), groups, state) for y in (b, c))
    time = np.clip(np.logaddexp(dt + dt_bias, 0), shortest, longest)
    decay = np.exp(-np.exp(a_log) * time)
    out = np.zeros_like(x)
    for begin, end, kept, slot in _sequences(step, cache.group, states):
        for h in range(heads):
            matrix, g = kept[h].copy(), h * groups // heads
            for t in range(begin, end):
                matrix = decay[t, h] * matrix + np.outer(time[t, h] * x[t, h], b[t, g])
                out[t, h] = matrix @ c[t, g] + skip[h] * x[t, h]
            states[slot, h] = matrix
    return out


def _sequences(step: StepView, group: int, states: Array) -> list[tuple[int, int, Array, int]]:
    """(first token, end, a copy of its state, slot to write) of each sequence of a step."""
    first = step.sequences("first_token")
    source, to = (step.sequences(f"{name}.{group}")[:-1] for name in ("slot_in", "slot_out"))
    read = [states[s].copy() if s >= 0 else np.zeros_like(states[0]) for s in source]
    return [(first[s], first[s + 1], read[s], to[s]) for s in range(len(to))]


OPERATORS: dict[str, Callable[..., Any] | CachedOperator] = {
    "mlcc.take_parts": take_parts,
    "mlcc.side_by_side": side_by_side,
    "mlcc.causal_conv": CachedOperator(causal_conv),
    "mlcc.delta_rule": CachedOperator(delta_rule),
    "mlcc.selective_scan": CachedOperator(selective_scan),
}
