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
from functools import partial
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.kernels.called_functions import calling
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.called_tiles import (
    CalledTiles,
    QuantizedRows,
    SumsKey,
    TileArguments,
    input_shapes,
    tile_function,
)
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.quantized_tile import AllRows, QuantizedTile
from mlcc_compiler.kernels.cpu.linear.row_pairs import quantized_tile
from mlcc_compiler.kernels.cpu.linear.tasks import TiledWeight, for_each_tile, rows_of_tile
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
    isa: Isa,
    parts: tuple[Part, ...],
    k: int,
    bias: bool,
    result: str = "float32",
    few_only: bool = False,
) -> Expr:
    """Like `linear_quantized` for weights one below the other, each of its own scheme but of one
    `row_form`: their tensors follow one another, and y and bias have the columns of all. few_only:
    without the code for `MANY` rows."""
    return merged_kernel(isa, parts, k, bias, result, partial(_register_tiles, isa, k, few_only))


OneWeight = tuple[CpuPacking, list[Expr], Output]
"""A weight's form, its tensors, and where its columns of y are."""


def merged_kernel(
    isa: Isa,
    parts: tuple[Part, ...],
    k: int,
    bias: bool,
    result: str,
    body: Callable[[QuantizedRows, list[OneWeight]], list[str]],
) -> Expr:
    """The PrimFunc of `linear_merged` with another body, which returns the functions it calls."""
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
        functions = body(QuantizedRows(n, x, x_scale, x_sum), found)
    return calling(builder.get(), functions)


def _register_tiles(
    isa: Isa, k: int, few_only: bool, rows: QuantizedRows, weights: list[OneWeight]
) -> list[str]:
    """Emit the product; returns the functions that it calls. Small code unpacks a tile for all
    numbers of rows, or for none."""
    forms = [form for form, _, _ in weights]
    few = [CalledTiles(few_rows_of_tile, rows, *weight, ()) for weight in weights]
    if few_only or isa.small_code or all(map(unpacks_few, forms)):
        tiled = [TiledWeight(each.form.tiles, each.call) for each in few]
        for_each_tile(tiled, rows.n, k, row_tiles(isa)[0])
        return [each.name for each in few]
    kernels = [_tile_of(rows, *weight) for weight in weights]
    keys = [kernel.keys_of_all_rows() for kernel in kernels]
    many = [
        CalledTiles(many_rows_of_tile, rows, *weight, own)
        for weight, own in zip(weights, keys, strict=True)
    ]

    def sums() -> None:
        ready: AllRows = {}
        for kernel, each, own in zip(kernels, many, keys, strict=True):
            kernel.sum_all_rows(rows.n, ready)
            each.sums = [ready[key].buffer.data for key in own]

    pairs = zip(few, many, strict=True)
    tiled = [TiledWeight(some.form.tiles, some.call, every.call) for some, every in pairs]
    for_each_tile(tiled, rows.n, k, row_tiles(isa)[0], sums)
    return [each.name for each in (*few, *many)]


def _tile_of(
    rows: QuantizedRows, form: CpuPacking, weights: list[Expr], output: Output
) -> QuantizedTile:
    return quantized_tile(form, rows.x, rows.x_scale, rows.x_sum, weights, output)


def few_rows_of_tile(form: CpuPacking, bias: bool, result: str, _: tuple[SumsKey, ...]) -> Expr:
    """The `tile_function` of register tiles of all heights."""

    def body(given: TileArguments) -> None:
        kernel = _tile_of(given.rows, form, given.weights, given.output)
        tile = kernel.unpacked(given.tile) if unpacks_few(form) else kernel.tile
        emit = rows_of_tile(tile, row_tiles(form.isa), given.rows.n)
        emit(given.begin, given.end, given.tile)

    return tile_function(form, bias, result, (), body)


def many_rows_of_tile(form: CpuPacking, bias: bool, result: str, keys: tuple[SumsKey, ...]) -> Expr:
    """The `tile_function` for `MANY` rows and more, which unpacks the tile and reads sums of all
    rows. A function of its own: beside others LLVM finds fewer registers for it on AVX2."""

    def body(given: TileArguments) -> None:
        kernel = _tile_of(given.rows, form, given.weights, given.output)
        for key, pointer in given.sums.items():
            kernel.read_all_rows(key, given.rows.n, pointer)
        emit = rows_of_tile(kernel.unpacked(given.tile), row_tiles(form.isa)[:1], given.rows.n)
        emit(given.begin, given.end, given.tile)

    return tile_function(form, bias, result, keys, body)


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
