"""Rotary position embedding (Su et al., 2021) in Hugging Face's rotate-half convention: a table of
cosines and sines once per step, applied to queries and keys of every layer. Scaling variants (YaRN,
Llama 3, linear) are not here: they change `inv_freq` and `mscale`, which the caller gives.
"""

from typing import Any

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.cpu.vector_math import Expr, bind, fit_lanes, span

_ATTRS = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}
_SERIAL = 8192


def rope_table(rotary_dim: int, mscale: float, lanes: int) -> tirx.PrimFunc:
    """(positions i32[n], inv_freq f32[rotary_dim / 2]) -> f32[n, rotary_dim].

    The first half of a row holds cosines of position * inv_freq (rounded to f32, as torch does),
    the second half sines, both times mscale.
    """
    half = rotary_dim // 2

    @T.prim_func(s_tir=True, private=True)
    def rope_table(
        positions_handle: T.handle, inv_freq: T.Buffer((half,), "float32"), table_handle: T.handle
    ):
        T.func_attr(_ATTRS)
        n = T.int64()
        positions = T.match_buffer(positions_handle, (n,), "int32")
        table = T.match_buffer(table_handle, (n, rotary_dim), "float32")

        @T.inline
        def row(i):
            for j in T.serial(half):
                angle: T.let = T.Cast("float32", positions[i]) * inv_freq[j]
                table[i, j] = T.cos(angle) * T.float32(mscale)
                table[i, half + j] = T.sin(angle) * T.float32(mscale)

        if n <= 8:
            for i in T.serial(n):
                row(i)
        else:
            for i in T.parallel(n):
                row(i)

    return rope_table


def rope(heads: int, head_dim: int, rotary_dim: int, lanes: int) -> tirx.PrimFunc:
    """(x f32[n, heads, head_dim], table f32[n, rotary_dim]) -> x with its first rotary_dim turned.

    Element j < rotary_dim / 2 pairs with j + rotary_dim / 2; the rest of a head is copied.
    """

    @T.prim_func(s_tir=True, private=True)
    def rope(x_handle: T.handle, table_handle: T.handle, y_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        x = T.match_buffer(x_handle, (n, heads, head_dim), "float32")
        table = T.match_buffer(table_handle, (n, rotary_dim), "float32")
        y = T.match_buffer(y_handle, (n, heads, head_dim), "float32")

        @T.inline
        def row(i):
            for h in T.serial(heads):
                _turn(x, table, y, i, h, head_dim, rotary_dim, lanes)

        if n * (heads * head_dim) <= _SERIAL:
            for i in T.serial(n):
                row(i)
        else:
            for i in T.parallel(n):
                row(i)

    return rope


def _turn(
    x: Any, table: Any, y: Any, i: Expr, h: Expr, head_dim: int, rotary_dim: int, lanes: int
) -> None:
    """Emit the rotation of one head of one token."""
    half = rotary_dim // 2
    k = fit_lanes(half, lanes)
    with T.serial(half // k) as j:
        low, high = span(j * k, k), span(half + j * k, k)
        a, b = bind(x[i, h, low]), bind(x[i, h, high])
        cos, sin = bind(table[i, low]), bind(table[i, high])
        T.buffer_store(y, a * cos - b * sin, [i, h, low])
        T.buffer_store(y, b * cos + a * sin, [i, h, high])
    rest = head_dim - rotary_dim
    if rest:
        k = fit_lanes(rest, lanes)
        with T.serial(rest // k) as j:
            at = [i, h, span(rotary_dim + j * k, k)]
            T.buffer_store(y, x[tuple(at)], at)
