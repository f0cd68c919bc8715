"""Naive numpy twins of the tuned kernels, written to be read.

Run by the `reference` executor, and by the tests as the oracle of `mlcc_compiler.kernels`. No
tricks, no speed: loops over sequences and rows. Computes in float32 unless the inputs are float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.device.reference.step_view import StepView

Array = Any
"""A numpy array; numpy's own type is lost in every arithmetic expression."""


# --- matrices and tables


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x [n, k] times weight [m, k] transposed, plus bias [m]."""
    y = x @ weight.T
    return y if bias is None else y + bias


def embedding(token_ids: Array, table: Array) -> Array:
    """Rows of table [vocab, hidden]."""
    return table[token_ids]


def spread_logits(logits: Array, rows: Array, least: float) -> Array:
    """The column of each token, or `least`."""
    columns = rows.astype(np.int64)
    return np.where(columns >= 0, logits[:, columns], least).astype(logits.dtype)


def take_rows(x: Array, rows: Array) -> Array:
    """The rows of x whose logits are needed."""
    return x[rows]


# --- reading a step


def read_step(
    step: StepView, last_sampled: Array, tokens: int | None = None, rows: int | None = None
) -> tuple[Array, ...]:
    """(token_ids [n], positions [n], rows [r], then slots [n] of each group with pages).

    Id -1 - i stands for the token sampled for row i of the previous step. There may be more tokens
    and rows than the step has: their ids, positions and rows are 0, their slots -1.
    """
    ids, wanted = step.tokens("id").copy(), step.rows("token")
    for i, token in enumerate(ids):
        if token < 0:
            ids[i] = last_sampled[-1 - token]
    n = len(ids) if tokens is None else tokens
    r = len(wanted) if rows is None else rows
    groups = enumerate(step.layout.groups)
    slots = [step.tokens(f"slot.{g}") for g, group in groups if group.has_pages]
    return (
        _extended(ids, n, 0),
        _extended(step.tokens("position"), n, 0),
        _extended(wanted, r, 0),
        *(_extended(column, n, -1) for column in slots),
    )


def _extended(values: Array, count: int, value: int) -> Array:
    return np.concatenate([values, np.full(count - len(values), value, values.dtype)])


# --- elementwise


def add(x: Array, y: Array) -> Array:
    """Elementwise sum."""
    return x + y


def scale(x: Array, factor: float) -> Array:
    """Every element times a constant."""
    return x * x.dtype.type(factor)


def scale_columns(x: Array, factors: Array) -> Array:
    """Every column times its own factor, or times the only one."""
    return x * factors


def subtract_columns(x: Array, columns: Array) -> Array:
    """Every column less its own number."""
    return x - columns


def clip(x: Array, least: Array, most: Array) -> Array:
    """Every element within both bounds, of one number each."""
    return np.clip(x, least, most).astype(x.dtype)


def softcap(x: Array, cap: float) -> Array:
    """Squash into (-cap, cap), as Gemma 2 does with logits."""
    return x.dtype.type(cap) * np.tanh(x / x.dtype.type(cap))


def sigmoid(x: Array) -> Array:
    """1 / (1 + e**-x), computed so that nothing overflows."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    """x times the normal distribution function of x."""
    erfc = np.vectorize(math.erfc, otypes=[np.float64])
    return (x * 0.5 * erfc(-x / math.sqrt(2.0))).astype(x.dtype)


def gelu_tanh(x: Array) -> Array:
    """The tanh approximation of gelu."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return (0.5 * x * (1.0 + np.tanh(inner))).astype(x.dtype)


def relu2(x: Array) -> Array:
    """The square of the positive part."""
    return np.maximum(x, 0) ** 2


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh, "sigmoid": sigmoid, "relu2": relu2,
    "identity": lambda x: x,
}  # fmt: skip


def activated(x: Array, kind: str) -> Array:
    """activation(x)."""
    return ACTIVATIONS[kind](x)


def gated(gate: Array, up: Array, kind: str) -> Array:
    """activation(gate) * up."""
    return ACTIVATIONS[kind](gate) * up


def gated_fused(x: Array, kind: str) -> Array:
    """`gated` for one array with the gate in the first half of each row."""
    gate, up = np.split(x, 2, axis=-1)
    return gated(gate, up, kind)


# --- normalisation


def rms_norm(x: Array, weight: Array, eps: float, offset: float = 0.0) -> Array:
    """Over the last axis: x / rms(x) * (offset + weight). Serves [n, hidden] and per head."""
    mean = np.mean(x * x, axis=-1, keepdims=True)
    return (x / np.sqrt(mean + eps) * (offset + weight)).astype(x.dtype)


def add_rms_norm(
    x: Array, residual: Array, weight: Array, eps: float, offset: float = 0.0
) -> tuple[Array, Array]:
    """(x + residual, its norm)."""
    total = x + residual
    return total, rms_norm(total, weight, eps, offset)


def layer_norm(x: Array, weight: Array, *rest: Any) -> Array:
    """Over the last axis: (x - mean) / deviation * (offset + weight), plus a bias. rest: optional
    bias, then eps and offset."""
    *bias, eps, offset = rest
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    y = centred / np.sqrt(variance + eps) * (offset + weight)
    return (y + bias[0] if bias else y).astype(x.dtype)


# --- rotary position embedding


def rope_table(positions: Array, inv_freq: Array, mscale: float) -> Array:
    """[n, rotary_dim]: cosines, then sines, of position * inv_freq (a float32 product)."""
    angle = positions.astype(inv_freq.dtype)[:, None] * inv_freq[None, :]
    wide = angle.astype(np.float64)
    return (np.concatenate([np.cos(wide), np.sin(wide)], axis=1) * mscale).astype(inv_freq.dtype)


def growth(positions: Array, beta: float, length: int) -> Array:
    """[n, 1]: 1 + beta * log(1 + position // length)."""
    grown: Array = 1 + beta * np.log1p(positions[:, None] // length)
    return grown


def rope(x: Array, table: Array, pairs: bool = False) -> Array:
    """Rotate the first rotary_dim elements of each head of x [n, heads, head_dim]: each with the
    element one half away, or with its neighbour if `pairs`."""
    half = table.shape[1] // 2
    cos, sin = table[:, None, :half], table[:, None, half:]
    if pairs:
        y = x.copy()
        a, b = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
        y[..., 0 : 2 * half : 2], y[..., 1 : 2 * half : 2] = a * cos - b * sin, b * cos + a * sin
        return y
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


# --- the operators of a graph


def _split(x: Array, at: list[int], axis: int) -> list[Array]:
    return np.split(x, at, axis)


OPERATORS: dict[str, Callable[..., Any]] = {
    "item": lambda values, index: values[index],
    "relax.add": np.add,
    "relax.multiply": np.multiply,
    "relax.reshape": np.reshape,
    "relax.split": _split,
    "mlcc.embedding": lambda token_ids, table, scheme: embedding(token_ids, table),
    "mlcc.linear": lambda *arguments: linear(*arguments[:-1]),
    "mlcc.concat_rows": lambda *weights: np.concatenate(weights),
    "mlcc.rms_norm": rms_norm,
    "mlcc.layer_norm": layer_norm,
    "mlcc.rope_table": rope_table,
    "mlcc.rope": rope,
    "mlcc.activated": activated,
    "mlcc.gated": gated,
    "mlcc.gated_fused": gated_fused,
    "mlcc.softcap": softcap,
    "mlcc.growth": growth,
    "mlcc.scale_columns": scale_columns,
    "mlcc.subtract_columns": subtract_columns,
    "mlcc.clip": clip,
    "mlcc.take_rows": take_rows,
    "mlcc.spread_logits": spread_logits,
}
"""By their names in the graph: arguments are the tensors, then the attributes. The executor joins
the tables of all files of twins."""
