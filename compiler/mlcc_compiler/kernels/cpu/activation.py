"""Elementwise CPU kernels: gated activations, logit softcap, addition. f32 in, f32 out."""

from collections.abc import Callable
from typing import Any

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.cpu.vector_math import (
    Expr,
    bind,
    each,
    gauss_tail,
    lanes_of,
    sigmoid,
    span,
    spread,
    store,
    tanh,
)

_ATTRS = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}
_SERIAL = 8192  # elements up to which one thread is faster than waking the others
_CHUNK = 2048  # elements of a row that one task takes


def silu(x: Expr) -> Expr:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Expr) -> Expr:
    """x * Phi(x) with the normal distribution's own Phi."""
    lanes = lanes_of(x)
    tail = bind(x * gauss_tail(x) * spread(0.5, lanes))
    return T.Select(x > spread(0.0, lanes), x - tail, tail)


def gelu_tanh(x: Expr) -> Expr:
    """The tanh approximation of GELU (Hendrycks & Gimpel, 2016)."""
    lanes = lanes_of(x)
    inner = (x + x * x * x * spread(0.044715, lanes)) * spread(0.7978845608028654, lanes)
    return x * spread(0.5, lanes) * (spread(1.0, lanes) + tanh(inner))


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def _chunk(row: int, lanes: int) -> int:
    """Elements per task: an even share of the row, whole vectors."""
    tasks = -(-row // _CHUNK)
    return -(-row // (tasks * lanes)) * lanes


def _row_tasks(y: Any, n: Expr, row: int, lanes: int, value: Any) -> None:
    """Emit y[i, j] = value(i, j) over n rows: in parallel by chunks of a row if it is worth it."""
    chunk = _chunk(row, lanes)
    whole, rest = divmod(row, chunk)
    tasks = whole + (rest > 0)

    def part(i: Expr, start: Expr, size: int) -> None:
        each(size, lanes, lambda j, k: store(y, value(i, span(j, k)), i, span(j, k)), start)

    with T.If(n * row <= _SERIAL):
        with T.Then(), T.serial(n) as i:
            part(i, 0, row)
        with T.Else(), T.parallel(n * tasks) as task:
            i = bind(T.floordiv(task, tasks))
            c = bind(T.floormod(task, tasks))
            if not rest:
                part(i, c * chunk, chunk)
            else:
                with T.If(c < whole):
                    with T.Then():
                        part(i, c * chunk, chunk)
                    with T.Else():
                        part(i, whole * chunk, rest)


def gated(inner: int, kind: str, lanes: int) -> tirx.PrimFunc:
    """(gate f32[n, inner], up f32[n, inner]) -> kind(gate) * up; kind: silu, gelu, gelu_tanh."""
    activation = ACTIVATIONS[kind]

    @T.prim_func(s_tir=True, private=True)
    def gated(gate_handle: T.handle, up_handle: T.handle, y_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        gate = T.match_buffer(gate_handle, (n, inner), "float32")
        up = T.match_buffer(up_handle, (n, inner), "float32")
        y = T.match_buffer(y_handle, (n, inner), "float32")
        _row_tasks(y, n, inner, lanes, lambda i, j: activation(gate[i, j]) * up[i, j])

    return gated


def gated_fused(inner: int, kind: str, lanes: int) -> tirx.PrimFunc:
    """(x f32[n, 2 * inner], gate in the first half of a row, up in the second) -> f32[n, inner]."""
    activation = ACTIVATIONS[kind]

    @T.prim_func(s_tir=True, private=True)
    def gated_fused(x_handle: T.handle, y_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        x = T.match_buffer(x_handle, (n, 2 * inner), "float32")
        y = T.match_buffer(y_handle, (n, inner), "float32")
        _row_tasks(y, n, inner, lanes, lambda i, j: activation(x[i, j]) * x[i, _shift(j, inner)])

    return gated_fused


def _shift(j: Expr, by: int) -> Expr:
    """The index `by` elements further, of one element or of a span of them."""
    return T.Ramp(j.base + by, 1, j.lanes) if hasattr(j, "base") else j + by


def softcap(size: int, cap: float, lanes: int) -> tirx.PrimFunc:
    """(x f32[n, size]) -> cap * tanh(x / cap)."""

    @T.prim_func(s_tir=True, private=True)
    def softcap(x_handle: T.handle, y_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        x = T.match_buffer(x_handle, (n, size), "float32")
        y = T.match_buffer(y_handle, (n, size), "float32")
        _row_tasks(y, n, size, lanes, lambda i, j: _capped(x[i, j], cap))

    return softcap


def _capped(x: Expr, cap: float) -> Expr:
    lanes = lanes_of(x)
    return tanh(x * spread(1.0 / cap, lanes)) * spread(cap, lanes)


def add(size: int, lanes: int) -> tirx.PrimFunc:
    """(x f32[n, size], y f32[n, size]) -> x + y."""

    @T.prim_func(s_tir=True, private=True)
    def add(x_handle: T.handle, y_handle: T.handle, out_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        x = T.match_buffer(x_handle, (n, size), "float32")
        y = T.match_buffer(y_handle, (n, size), "float32")
        out = T.match_buffer(out_handle, (n, size), "float32")
        _row_tasks(out, n, size, lanes, lambda i, j: x[i, j] + y[i, j])

    return add


def scale(size: int, factor: float, lanes: int) -> tirx.PrimFunc:
    """(x f32[n, size]) -> factor * x."""

    @T.prim_func(s_tir=True, private=True)
    def scale(x_handle: T.handle, y_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        x = T.match_buffer(x_handle, (n, size), "float32")
        y = T.match_buffer(y_handle, (n, size), "float32")
        _row_tasks(y, n, size, lanes, lambda i, j: x[i, j] * spread(factor, lanes_of(x[i, j])))

    return scale
