"""Panels for AMX: a weight's columns as bf16, for some k, from the packed weight.

A tile's 32 columns, 32 k of them at a time, are [2, 16 pairs of k, 16 columns] words of 32 bits.
Codes are scaled in float32, in one multiply-add, and rounded once. Multiplication is `amx.py`, the
packed layout `packing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa import amx, bf16_pairs
from mlcc_compiler.kernels.cpu.linear.packing import COLUMN_VECTORS, STRETCH, CpuPacking
from mlcc_compiler.kernels.cpu.linear.tile import Strip
from mlcc_compiler.kernels.cpu.linear.weights.stored_weight import StoredWeight

Expr = Any

_LANES = amx.SIDE // COLUMN_VECTORS
_PAIRS = amx.DEPTH // 2
_KIND = f"float32x{_LANES}"


def fits(packing: CpuPacking) -> bool:
    """Whether a panel can be made of such a weight: bf16, or codes in whole stretches of 32."""
    how = packing.scheme
    if packing.k % amx.DEPTH or packing.width != amx.SIDE:
        return False
    return how.dtype == "bfloat16" if how.is_float else packing.rows.group == STRETCH


def write_panel(
    packing: CpuPacking, weights: Sequence[Expr], tile: Expr, step: Expr, into: Expr, word: Expr
) -> None:
    """Emit 32 k, from `step` * 32 on, of a tile of the weight, to `into` i32[...] from `word`
    on."""
    write = _write_floats if packing.scheme.is_float else _write_codes

    def put(column: int, pair: Expr, value: Expr) -> None:
        place = word + (column * _PAIRS + pair) * _LANES
        B.buffer_store(into, value, [T.Ramp(place, 1, _LANES)])

    write(packing, weights, tile, step, put)


def _write_floats(
    packing: CpuPacking, weights: Sequence[Expr], tile: Expr, step: Expr, put: Any
) -> None:
    """Rows k and k + 1 are contiguous in memory, and interleaved here."""
    width = packing.width
    with B.serial(_PAIRS) as pair:
        k = step * amx.DEPTH + 2 * pair
        both = [B.bind(weights[0].vload([tile, k + i, 0], f"uint16x{width}")) for i in range(2)]
        for c in range(COLUMN_VECTORS):
            turns = [c * _LANES + j + i * width for j in range(_LANES) for i in range(2)]
            put(c, pair, T.reinterpret(f"int32x{_LANES}", T.Shuffle(both, turns)))


def _write_codes(
    packing: CpuPacking, weights: Sequence[Expr], tile: Expr, step: Expr, put: Any
) -> None:
    """A stretch: a group, half of two, or part of one. A lane has four codes of a column."""
    stored, groups = StoredWeight(packing, weights), max(STRETCH // packing.group, 1)
    first = B.bind(step * groups if groups > 1 else step // (packing.group // STRETCH))
    stored.enter(tile, first, Strip(0, 1, COLUMN_VECTORS, _LANES))
    each = packing.steps // groups
    for c, codes in enumerate(stored.block(tile, step, 0, packing.steps)):
        for part in range(groups):
            scale, offset = _scale_and_offset(stored, tile, first + part, c)
            for i in range(part * each, (part + 1) * each):
                four = B.bind(T.reinterpret(f"uint32x{_LANES}", codes.step(i)))
                values = [_byte(four, j) * scale + offset for j in range(planes.STEP)]
                put(c, 2 * i, bf16_pairs.pair(*values[:2]))
                put(c, 2 * i + 1, bf16_pairs.pair(*values[2:]))


def _scale_and_offset(stored: StoredWeight, tile: Expr, group: Expr, c: int) -> tuple[Expr, Expr]:
    """weight = code * scale + offset, for 16 columns. It is exactly 0 for the middle code: a
    float16, or its product with an integer, times a byte is exact in float32."""
    scale, numbers = stored.scale(tile, group, c), stored.numbers
    if numbers.minima:
        return scale, stored.minimum(tile, group, c)
    if numbers.middle is None:
        zero = T.Cast(_KIND, numbers.zero((tile, group), c * _LANES, _LANES))
    else:
        zero = T.Broadcast(T.float32(numbers.middle), _LANES)
    return scale, B.bind(T.Broadcast(T.float32(0), _LANES) - zero * scale)


def _byte(words: Expr, place: int) -> Expr:
    """One of four bytes of each lane, as a float."""

    def all_of(number: int) -> Expr:
        return T.Broadcast(T.uint32(number), _LANES)

    value = words >> all_of(8 * place) if place else words
    return T.Cast(_KIND, value if place == 3 else value & all_of(255))
