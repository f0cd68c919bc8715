"""activation(x @ gate.T) * (x @ up.T) for many rows, by AMX, as the next product reads it.

Gate and up are tiles of the same columns, multiplied side by side; 32 rows of 32 columns of both
become 32 columns of bf16 in tiles (`amx_rows.py`) while they are in the first-level cache. Written
as float32, the two would be four times the bytes and leave the second-level cache: that took as
long as half of the product. Few rows go through float32, as without AMX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels.cpu.isa import amx
from mlcc_compiler.kernels.cpu.isa.activations import ACTIVATIONS
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
from mlcc_compiler.quantization import scheme

Expr = Any

_LANES = amx.SIDE // 2


def fuses_gated(isa: Isa, gate_up: Sequence[str], k: int, down: Sequence[str], inner: int) -> bool:
    """Whether gate and up of K = k and these schemes, and what reads their products, a projection
    of K = `inner`, all multiply many rows by AMX, and few rows in one form."""
    names = [*gate_up, *down]
    alike = len({scheme(name).is_float for name in names}) == 1
    by_tiles = all(uses_amx(isa, k, scheme(name)) for name in gate_up)
    return alike and by_tiles and all(uses_amx(isa, inner, scheme(name)) for name in down)


def gated_many(isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, kind: str) -> Expr:
    """PrimFunc(inputs of `linear_many`, weights, [bias f32[2 N]], y f32[n, 2 N], products
    u16[tiles_of(n, N), 512]): y of few rows, of many the products."""
    inner = sum(n for n, _ in parts) // 2

    def body(x: Expr, weights: list[PackedWeight], bias_buffer: Expr, products: Expr) -> None:
        def finish(row: Expr, tile: Expr, sums: Expr, places: list[Expr]) -> None:
            _write_products(products, bias_buffer, inner, kind, row, tile, sums, places)

        gate, up = weights if len(weights) == 2 else weights * 2
        up = PackedWeight(up.packing, up.tensors, 0 if len(weights) == 2 else inner // amx.SIDE)
        squares = products.shape[0] // (2 * (inner // amx.DEPTH))
        AmxGemm([gate, up], inner // amx.SIDE, x, finish).emit(B.bind(squares * amx.SIDE))

    shape = (T.int64(), TILE)
    many = amx_kernel(isa, parts, k, bias, shape, "uint16", body)
    few = linear_few(isa, parts, k, bias, "float32")
    shared = zip(few.params[few_inputs(parts) : -1], many.params[1:-1], strict=True)
    return few_or_many(parts, few, many, dict(shared))


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
    activation, floats = ACTIVATIONS[kind], f"float32x{_LANES}"

    def value(r: Expr, which: int, part: int) -> Expr:
        found = sums.vload([places[which] + r * amx.SIDE + part * _LANES], floats)
        if bias is None:
            return found
        return found + bias.vload([which * inner + tile * amx.SIDE + part * _LANES], floats)

    with B.serial(amx.SIDE) as r:
        both = [activation(B.bind(value(r, 0, part))) * value(r, 1, part) for part in range(2)]
        words = T.reinterpret(f"uint16x{amx.DEPTH}", halves(*both))
        place = T.Ramp((row + r) % (amx.SIDE // 2) * amx.DEPTH, 1, amx.DEPTH)
        B.buffer_store(products, words, [tile_at(inner, row + r, tile), place])
