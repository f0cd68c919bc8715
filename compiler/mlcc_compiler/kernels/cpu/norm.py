"""Root-mean-square normalisation (Zhang & Sennrich, 2019), alone, with the residual sum before it,
and per attention head. CPU kernels in f32; not LayerNorm: no mean is subtracted, there is no bias.
"""

from typing import Any

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.cpu.vector_math import Expr, bind, each, span, spread, sum_lanes, vector

_ATTRS = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}
_UNROLL = 4  # independent sums, to hide the latency of an addition
_SERIAL = 8192  # elements up to which one thread is faster than waking the others


def _scale(load: Any, size: int, eps: float, lanes: int) -> Expr:
    """Emit the statements that compute rsqrt(mean(load(i) ** 2) + eps) over i < size."""
    steps, rest = divmod(size, lanes)
    blocks, tail = divmod(steps, _UNROLL)
    acc = T.alloc_buffer((_UNROLL,), vector("float32", lanes), scope="local")
    total = T.alloc_buffer((1,), "float32", scope="local")
    for u in range(_UNROLL):
        T.buffer_store(acc, spread(0.0, lanes), [u])
    with T.serial(blocks) as j:
        for u in range(_UNROLL):
            x = bind(load((j * _UNROLL + u) * lanes, lanes))
            T.buffer_store(acc, acc[u] + x * x, [u])
    for u in range(tail):
        x = bind(load((blocks * _UNROLL + u) * lanes, lanes))
        T.buffer_store(acc, acc[u] + x * x, [u])
    T.buffer_store(total, sum_lanes((acc[0] + acc[1]) + (acc[2] + acc[3])), [0])
    with T.serial(rest) as j:
        x = bind(load(steps * lanes + j, 1))
        T.buffer_store(total, total[0] + x * x, [0])
    mean = total[0] * T.float32(1.0 / size)
    return bind(T.float32(1.0) / T.sqrt(mean + T.float32(eps)))


def rms_norm(hidden: int, eps: float, lanes: int, offset: float = 0.0) -> tirx.PrimFunc:
    """(x f32[n, hidden], w f32[hidden]) -> x * rsqrt(mean(x**2) + eps) * (offset + w)."""

    @T.prim_func(s_tir=True, private=True)
    def rms_norm(x_handle: T.handle, w: T.Buffer((hidden,), "float32"), y_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        x = T.match_buffer(x_handle, (n, hidden), "float32")
        y = T.match_buffer(y_handle, (n, hidden), "float32")

        @T.inline
        def row(i):
            _normalise(x, w, y, [i], hidden, eps, lanes, offset)

        if n * hidden <= _SERIAL:
            for i in T.serial(n):
                row(i)
        else:
            for i in T.parallel(n):
                row(i)

    return rms_norm


def _normalise(
    x: Any, w: Any, y: Any, at: list[Expr], size: int, eps: float, lanes: int, offset: float
) -> None:
    """Emit y[at] = normalised x[at]."""
    scale = _scale(lambda j, k: x[(*at, span(j, k))], size, eps, lanes)

    def store(j: Expr, k: int) -> None:
        weight = w[span(j, k)] + spread(offset, k) if offset else w[span(j, k)]
        T.buffer_store(y, x[(*at, span(j, k))] * spread(scale, k) * weight, [*at, span(j, k)])

    each(size, lanes, store)


def rms_norm_heads(
    heads: int, head_dim: int, eps: float, lanes: int, offset: float = 0.0
) -> tirx.PrimFunc:
    """(x f32[n, heads, head_dim], w f32[head_dim]) -> each head normalised by itself."""

    @T.prim_func(s_tir=True, private=True)
    def rms_norm_heads(x_handle: T.handle, w: T.Buffer((head_dim,), "float32"), y_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        x = T.match_buffer(x_handle, (n, heads, head_dim), "float32")
        y = T.match_buffer(y_handle, (n, heads, head_dim), "float32")

        @T.inline
        def row(i):
            for h in T.serial(heads):
                _normalise(x, w, y, [i, h], head_dim, eps, lanes, offset)

        if n * (heads * head_dim) <= _SERIAL:
            for i in T.serial(n):
                row(i)
        else:
            for i in T.parallel(n):
                row(i)

    return rms_norm_heads


def add_rms_norm(hidden: int, eps: float, lanes: int, offset: float = 0.0) -> tirx.PrimFunc:
    """(x f32[n, hidden], residual f32[n, hidden], w f32[hidden]) -> (x + residual, its norm)."""

    @T.prim_func(s_tir=True, private=True)
    def add_rms_norm(
        x_handle: T.handle,
        residual_handle: T.handle,
        w: T.Buffer((hidden,), "float32"),
        sum_handle: T.handle,
        y_handle: T.handle,
    ):
        T.func_attr(_ATTRS)
        n = T.int64()
        x = T.match_buffer(x_handle, (n, hidden), "float32")
        residual = T.match_buffer(residual_handle, (n, hidden), "float32")
        total = T.match_buffer(sum_handle, (n, hidden), "float32")
        y = T.match_buffer(y_handle, (n, hidden), "float32")

        @T.inline
        def row(i):
            _add(x, residual, total, i, hidden, lanes)
            _normalise(total, w, y, [i], hidden, eps, lanes, offset)

        if n * hidden <= _SERIAL:
            for i in T.serial(n):
                row(i)
        else:
            for i in T.parallel(n):
                row(i)

    return add_rms_norm


def _add(x: Any, residual: Any, total: Any, i: Expr, size: int, lanes: int) -> None:
    def store(j: Expr, k: int) -> None:
        T.buffer_store(total, x[i, span(j, k)] + residual[i, span(j, k)], [i, span(j, k)])

    each(size, lanes, store)
