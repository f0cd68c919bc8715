"""activation(x @ gate.T) * (x @ up.T), or activation(x @ weight.T), for many rows, by AMX, as the
next product reads it.

Gate and up are tiles of the same columns, multiplied side by side; 32 rows of 32 columns of both
become 32 columns of bf16 in tiles (`amx_rows.py`) while they are in the first-level cache. Written
as float32, the two would be four times the bytes and leave the second-level cache: that took as
long as half of the product. Few rows go through float32, as without AMX.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels.cpu.isa import amx
from mlcc_compiler.kernels.cpu.isa.activations import ACTIVATIONS, Activation, gelu_tanh, silu
from mlcc_compiler.kernels.cpu.isa.avx512 import AVX512_IR, sigmoid
from mlcc_compiler.kernels.cpu.isa.bf16_pairs import halves
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.amx_gemm import (
    AmxGemm,
    PackedWeight,
    amx_kernel,
    few_inputs,
    few_or_many,
    linear_few,
    uses_amx,
)
from mlcc_compiler.kernels.cpu.linear.amx_rows import TILE, tile_at
from mlcc_compiler.kernels.cpu.linear.quantized import Part
from mlcc_compiler.quantization import Scheme, scheme

Expr = Any

_LANES = amx.SIDE // 2
_ROUNDED: dict[str, Activation] = {
    **ACTIVATIONS,
    "silu": partial(silu, sigmoid=sigmoid),
    "gelu_tanh": partial(gelu_tanh, sigmoid=sigmoid),
    "sigmoid": sigmoid,
}
"""Activations whose results are rounded to bf16."""


def fuses_gated(isa: Isa, gate_up: Sequence[str], k: int, down: Sequence[str], inner: int) -> bool:
    """Whether gate and up, or one projection, of K = k and these schemes, and what reads the
    result, a projection of K = `inner`, all multiply many rows by AMX, and few in one form."""
    names = [*gate_up, *down]
    alike = len({scheme(name).is_float for name in names}) == 1
    by_tiles = all(uses_amx(isa, k, scheme(name)) for name in gate_up)
    return alike and by_tiles and all(uses_amx(isa, inner, scheme(name)) for name in down)


def activated_many(isa: Isa, n_out: int, how: Scheme, k: int, bias: bool, kind: str) -> Expr:
    """PrimFunc(inputs of `linear_many`, weight, [bias f32[N]], y f32[n, N], results
    u16[tiles_of(n, N), 512]): y of few rows, of many activation(x @ weight.T)."""
    return _fused(isa, ((n_out, how),), k, bias, kind, 1)


def gated_many(isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, kind: str) -> Expr:
    """PrimFunc(inputs of `linear_many`, weights, [bias f32[2 N]], y f32[n, 2 N], products
    u16[tiles_of(n, N), 512]): y of few rows, of many the products."""
    return _fused(isa, parts, k, bias, kind, 2)


def _fused(isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, kind: str, factors: int) -> Expr:
    """The kernel of one projection (factors 1), or of gate and up (2)."""
    inner = sum(n for n, _ in parts) // factors

    def body(x: Expr, weights: list[PackedWeight], bias_buffer: Expr, products: Expr) -> None:
        def finish(row: Expr, tile: Expr, sums: Expr, places: list[Expr]) -> None:
            _write_products(products, bias_buffer, inner, kind, row, tile, sums, places)

        read = weights if factors == 1 else _gate_and_up(weights, inner)
        squares = products.shape[0] // (2 * (inner // amx.DEPTH))
        AmxGemm(read, inner // amx.SIDE, x, finish).emit(B.bind(squares * amx.SIDE))

    shape = (T.int64(), TILE)
    many = amx_kernel(isa, parts, k, bias, shape, "uint16", body, AVX512_IR)
    few = linear_few(isa, parts, k, bias, "float32")
    shared = zip(few.params[few_inputs(parts) : -1], many.params[1:-1], strict=True)
    return few_or_many(parts, few, many, dict(shared))


def _gate_and_up(weights: list[PackedWeight], inner: int) -> list[PackedWeight]:
    """Two weights, or the halves of one."""
    if len(weights) == 2:
        return weights
    (both,) = weights
    return [both, PackedWeight(both.packing, both.tensors, inner // amx.SIDE)]


def _write_products(
    products: Expr,
    bias: Expr | None,
    inner: int,
    kind: str,
    row: Expr,
    tile: Expr,
    sums: Expr,
    places: list[Expr],
) -> None:
    """32 rows; those past the last are padding."""
    activation, floats = _ROUNDED[kind], f"float32x{_LANES}"

    def value(r: Expr, which: int, part: int) -> Expr:
        found = sums.vload([places[which] + r * amx.SIDE + part * _LANES], floats)
        if bias is None:
            return found
        return found + bias.vload([which * inner + tile * amx.SIDE + part * _LANES], floats)

    with B.serial(amx.SIDE) as r:
        both = [activation(B.bind(value(r, 0, part))) for part in range(2)]
        if len(places) == 2:
            both = [gate * value(r, 1, part) for part, gate in enumerate(both)]
        words = T.reinterpret(f"uint16x{amx.DEPTH}", halves(*both))
        place = T.Ramp((row + r) % (amx.SIDE // 2) * amx.DEPTH, 1, amx.DEPTH)
        B.buffer_store(products, words, [tile_at(inner, row + r, tile), place])
