"""y = x @ weight.T for weights of 2 to 8 bits: byte dot products in 32-bit lanes.

Both sides are quantized by group along K (as GGUF's Q4_0 x Q8_0), so a group's sum is exact in
int32 and the float work is one conversion and two products for each group, or three with minima:

    y[i, j] += x_scale[i, s] * (scale[j, g] * (sum over the group of (code - zero) * x)
                                + minimum[j, g] * x_sum[i, g])

where s is the stretch of the activations that group g lies in, or that lies in it; of activations
of 16 bits, the sum of that for both parts (`quantize_rows.py`). The accumulator starts at
-zero * x_sum, which makes unsigned codes free. One kernel for every scheme, and for several weights
of one input: their tiles are shared out together, each weight with a loop of its own, and make one
y. Not here:
how x is quantized (`quantize_rows.py`), the loops over tiles (`tile.py`), what is done in one
(`quantized_tile.py`), the byte order (`packing.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.quantized_tile import AllRows, QuantizedTile
from mlcc_compiler.kernels.cpu.linear.row_pairs import quantized_tile
from mlcc_compiler.kernels.cpu.linear.tasks import TiledWeight, for_each_tile
from mlcc_compiler.kernels.cpu.linear.tile import OPAQUE, Output
from mlcc_compiler.kernels.cpu.linear.weights.unpacked_panel import unpacks_few
from mlcc_compiler.quantization import Scheme

Expr = Any

Part = tuple[int, Scheme]
"""Rows and scheme of one of the weights that a product reads."""


def linear_quantized(
    isa: Isa, n_out: int, k: int, scheme: Scheme, bias: bool, result: str = "float32"
) -> Expr:
    """PrimFunc(xq i8[n, K], x_scale f32[n, K / group], x_sum i32[n, K / sums], weight, [bias], y).

    Group and sums are those of `packing.row_form`. The weight's tensors are those of
    `CpuPacking.tensors`; bias f32[N], y result[n, N].
    """
    return linear_merged(isa, ((n_out, scheme),), k, bias, result)


def linear_merged(
    isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, result: str = "float32"
) -> Expr:
    """Like `linear_quantized` for weights one below the other, each of its own scheme but of one
    `row_form`: their tensors follow one another, and y and bias have the columns of all."""
    return merged_kernel(isa, parts, k, bias, result, partial(_register_tiles, isa, k))


@dataclass(frozen=True)
class QuantizedRows:
    """x as products read it: int8 [n, K], scales float32 and sums int32."""

    n: Expr
    x: Expr
    x_scale: Expr
    x_sum: Expr


OneWeight = tuple[CpuPacking, list[Expr], Output]
"""A weight's form, its tensors, and where its columns of y are."""


def merged_kernel(
    isa: Isa,
    parts: tuple[Part, ...],
    k: int,
    bias: bool,
    result: str,
    body: Callable[[QuantizedRows, list[OneWeight]], None],
) -> Expr:
    """The PrimFunc of `linear_merged` with another body."""
    forms = [CpuPacking(n, k, scheme, isa) for n, scheme in parts]
    rows, columns = forms[0].rows, sum(n for n, _ in parts)
    assert all(form.rows == rows for form in forms)
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
        handles = [B.arg(name, T.handle()) for name in ("xq", "x_scale", "x_sum")]
        weights = [
            [B.arg(f"{t.suffix[1:]}{i or ''}", B.buffer(t.shape, t.dtype)) for t in form.tensors]
            for i, form in enumerate(forms)
        ]
        bias_buffer = B.arg("bias", B.buffer((columns,), "float32")) if bias else None
        y_handle = B.arg("y", T.handle())
        n = T.int64()
        x, x_scale, x_sum = (
            B.match_buffer(h, (n, width), dtype)
            for h, (width, dtype) in zip(handles, input_shapes(forms[0], k), strict=True)
        )
        y = B.match_buffer(y_handle, (n, columns), result)
        first, found = 0, []
        for form, tensors in zip(forms, weights, strict=True):
            found.append((form, tensors, Output(form, y, bias_buffer, first=first)))
            first += form.n
        body(QuantizedRows(n, x, x_scale, x_sum), found)
    return builder.get()


def _register_tiles(isa: Isa, k: int, rows: QuantizedRows, weights: list[OneWeight]) -> None:
    kernels = [
        quantized_tile(form, rows.x, rows.x_scale, rows.x_sum, tensors, output)
        for form, tensors, output in weights
    ]

    def sums() -> None:
        ready: AllRows = {}
        for kernel in kernels:
            kernel.sum_all_rows(rows.n, ready)

    tiled = [_tiled(each) for each in kernels]
    for_each_tile(tiled, rows.n, k, row_tiles(isa), sums)


def _tiled(kernel: QuantizedTile) -> TiledWeight:
    """Small code unpacks a tile for all numbers of rows, or for none."""
    few, unpacked = unpacks_few(kernel.p), kernel.unpacked
    with_panel = few or not kernel.isa.small_code
    return TiledWeight(kernel.p.tiles, kernel.tile, unpacked if with_panel else None, few)


def input_shapes(form: CpuPacking, width: int) -> list[tuple[int, str]]:
    """Row length and dtype of the three arrays that represent x, of rows of `width`."""
    rows, all_parts = form.rows, width * form.isa.activation_parts
    counts = [(all_parts // rows.group, "float32"), (all_parts // rows.sums, "int32")]
    return [(all_parts, "int8"), *counts]


def row_tiles(isa: Isa) -> tuple[int, ...]:
    """Heights of the register tiles: an int32 and a float sum per row and column vector, beside
    codes and activations; half as many rows if activations have two parts, with an int32 sum each.
    Tiles of 3 are for CPUs that wait for memory; SMMLA takes rows in pairs; small code has
    two heights.
    """
    if isa.small_code:
        return 4 // isa.activation_parts, 1
    sizes = (6, 4, 3, 2, 1) if isa.registers >= 32 else (4, 2, 1)
    if isa.activation_parts > 1:
        return tuple(n // 2 for n in sizes if n % 2 == 0)
    return tuple(n for n in sizes if n != 3) if isa.dot == "neon_i8mm" else sizes
