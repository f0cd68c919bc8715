"""Rows of activations as AMX reads them: bf16, in tiles of 16 rows by 32 columns.

A tile is 1,024 contiguous bytes, and the tiles of 16 rows follow one another: u16[tiles, 512] is
[rows / 16, K / 32, 16, 32]. Rows of a matrix with a large power of two as its pitch would all map
to the same set of the first-level cache, which holds 12 of a tile's 16. Rows are padded to whole
squares (`tiles_of`); what stands in padding is undefined, and affects no row but its own.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T, tirx
from mlcc_compiler.kernels.cpu.isa import amx
from mlcc_compiler.kernels.cpu.isa.bf16_pairs import PAIR_IR, halves, imported
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.quantize_rows import quantize_rows
from mlcc_compiler.kernels.cpu.linear.tile import OPAQUE, for_rows
from mlcc_compiler.kernels.fused_kernels import READS_LAST

Expr = Any

MANY = 32
"""Rows from which on products with codes use AMX: fewer take no longer without."""
MANY_FLOATS = 8
"""The same for bf16 weights, which otherwise are multiplied as float32."""
TILE = amx.SIDE // 2 * amx.DEPTH
"""Numbers of a tile."""
TILE_ROWS_READER = "mlcc.rows_or_tiles"
"""Attribute of `rows_or_tiles`."""
_ROWS = amx.SIDE // 2
_LANES = amx.DEPTH // 2


def least_rows(is_float: bool) -> int:
    """Rows from which on products with floats, or with codes, use AMX."""
    return MANY_FLOATS if is_float else MANY


def tiles_of(rows: Any, k: int) -> Any:
    """The number of tiles of `rows` rows of k, in whole squares; `rows` may be symbolic."""
    return (rows + (amx.SIDE - 1)) // amx.SIDE * (amx.SIDE // _ROWS * (k // amx.DEPTH))


def tile_at(k: int, row: Expr, step: Expr) -> Expr:
    """The tile of a row and of `DEPTH` columns."""
    return row // _ROWS * (k // amx.DEPTH) + step


def round_to_tiles(isa: Isa, k: int, least: int = MANY_FLOATS) -> Expr:
    """PrimFunc(x f32[n, K], tiles u16[tiles_of(n, K), 512]): the nearest bf16, for `least` rows and
    more; nothing for fewer."""
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        attributes = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE}
        B.func_attr({**attributes, READS_LAST: True})
        handles = [B.arg(name, T.handle()) for name in ("x", "tiles")]
        n = T.int64()
        x = B.match_buffer(handles[0], (n, k), "float32")
        tiles = B.match_buffer(handles[1], (T.int64(), TILE), "uint16")

        def row(i: Expr) -> None:
            with B.serial(k // amx.DEPTH) as step:
                both = [
                    x.vload([i, step * amx.DEPTH + part * _LANES], f"float32x{_LANES}")
                    for part in range(2)
                ]
                words = T.reinterpret(f"uint16x{amx.DEPTH}", halves(*both))
                place = T.Ramp(i % _ROWS * amx.DEPTH, 1, amx.DEPTH)
                B.buffer_store(tiles, words, [tile_at(k, i, step), place])

        with imported(PAIR_IR), B.If(n >= least), B.Then():
            for_rows(n, k, row)
    return builder.get()


def rows_or_tiles(isa: Isa, k: int, group: int, sums: int) -> Expr:
    """PrimFunc(x f32[n, K], xq, x_scale, x_sum, tiles u16[...]): of fewer than `MANY` rows
    the outputs of `quantize_rows`, of more the tiles."""
    codes, tiles = quantize_rows(isa, k, group, sums), round_to_tiles(isa, k, MANY)
    x, made = tiles.params
    body = tirx.IfThenElse(x.ty.shape[0] >= MANY, tiles.body, codes.body)
    apart = tirx.PrimFunc([*codes.params, x, made], body, attrs=codes.attrs)
    return apart.specialize({x: codes.params[0]}).with_attr(TILE_ROWS_READER, True)


def quantize_few(isa: Isa, k: int, group: int, sums: int) -> Expr:
    """`quantize_rows` of few rows; nothing for many."""
    return of_few(quantize_rows(isa, k, group, sums), False)


def of_few(kernel: Expr, is_float: bool) -> Expr:
    """A kernel that does nothing for as many rows as use AMX: the rows of its first parameter."""
    few = kernel.params[0].ty.shape[0] < least_rows(is_float)
    return kernel.with_body(tirx.IfThenElse(few, kernel.body, None))
