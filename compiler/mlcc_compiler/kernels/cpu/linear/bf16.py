"""y = x @ weight.T for bf16 weights by VDPBF16PS: 32 products of bf16, added in pairs to 16 floats.

Twice the products of a float32 multiply-add; x is rounded to bf16 for it (to nearest even, once for
all readers), as other engines do. `--activations 16` keeps x in float32 with multiply-adds. The
weights are packed as all floats (`packing.py`): two rows of a tile, k and k + 1, are interleaved in
registers, within each 128 bits as that is cheapest, and the sums are reordered at the end. The
instruction rounds once a pair and flushes subnormals to zero.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.kernels.cpu.isa.bf16_pairs import DOT2_IR, dot2, imported
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import fit_lanes
from mlcc_compiler.kernels.cpu.linear.floats import ROW_TILES, float_product
from mlcc_compiler.kernels.cpu.linear.packing import COLUMN_VECTORS, CpuPacking
from mlcc_compiler.kernels.cpu.linear.tasks import TiledWeight, for_each_tile, rows_of_tile
from mlcc_compiler.kernels.cpu.linear.tile import (
    OPAQUE,
    Output,
    Registers,
    Strip,
    for_rows,
    prefetch,
    rows_ahead,
)
from mlcc_compiler.kernels.fused_kernels import READS_LAST
from mlcc_compiler.quantization import Scheme

Expr = Any

_UNROLL = 4
"""Pairs along K per iteration of the inner loop."""
_BLOCK = 4
"""Columns of 128 bits of sums."""


def uses_bf16_dot(isa: Isa, k: int, scheme: Scheme) -> bool:
    """Whether rows of k multiply such a weight as bf16."""
    whole = isa.activation_parts == 1 and isa.activation_dtype == "float32" and k % 2 == 0
    return isa.has_bf16 and whole and scheme.dtype == "bfloat16"


def round_rows(isa: Isa, k: int) -> Expr:
    """PrimFunc(x f32[n, K], y u16[n, K]): the bits of the nearest bf16; NaN stays NaN."""
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        attributes = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE}
        B.func_attr({**attributes, READS_LAST: True})
        handles = [B.arg(name, T.handle()) for name in ("x", "y")]
        n = T.int64()
        x = B.match_buffer(handles[0], (n, k), "float32")
        y = B.match_buffer(handles[1], (n, k), "uint16")
        lanes = fit_lanes(k, isa.lanes)

        def row(i: Expr) -> None:
            with B.serial(k // lanes) as part:
                values = x.vload([i, part * lanes], f"float32x{lanes}" if lanes > 1 else "float32")
                B.buffer_store(y, _rounded(values, lanes), [i, T.Ramp(part * lanes, 1, lanes)])

        for_rows(n, k, row)
    return builder.get()


def _rounded(values: Expr, lanes: int) -> Expr:
    def spread(number: int) -> Expr:
        return T.Broadcast(T.uint32(number), lanes)

    bits = B.bind(T.reinterpret(f"uint32x{lanes}", values))
    half = (bits >> spread(16)) & spread(1)
    nearest = (bits + half + spread(0x7FFF)) >> spread(16)
    quiet = (bits >> spread(16)) | spread(0x40)
    is_nan = (bits & spread(0x7FFFFFFF)) > spread(0x7F800000)
    return T.Cast(f"uint16x{lanes}", T.Select(is_nan, quiet, nearest))


def linear_bf16(
    isa: Isa, n_out: int, k: int, scheme: Scheme, bias: bool, result: str = "float32"
) -> Expr:
    """PrimFunc(x u16[n, K], weight, [bias f32[N]], y result[n, N]); x of `round_rows`, the weight
    as `CpuPacking.tensors`."""
    packing = CpuPacking(n_out, k, scheme, isa)

    def tiles(x: Expr, weight: Expr, output: Output, n: Expr) -> None:
        def tile(rows: int, row: Expr, tile: Expr) -> None:
            _tile(packing, x, weight, output, rows, row, tile)

        with imported(DOT2_IR):
            rows = rows_of_tile(tile, ROW_TILES, n)
            for_each_tile([TiledWeight(packing.tiles, rows)], n, 2 * k, ROW_TILES[0])

    return float_product(packing, "uint16", bias, result, tiles)


def _tile(
    packing: CpuPacking, x: Expr, weight: Expr, output: Output, rows: int, row: Expr, tile: Expr
) -> None:
    """Emit one register tile; all of its columns are one register of bf16."""
    lanes, width = packing.isa.lanes, packing.width
    strip = Strip(0, 1, COLUMN_VECTORS, lanes)
    if rows == ROW_TILES[0]:
        output.prefetch_rows(rows, row, tile, strip)
    sums = Registers(rows * COLUMN_VECTORS, lanes, "float32")
    with B.unroll(rows * COLUMN_VECTORS) as i:
        sums.set(i, T.Broadcast(T.float32(0), lanes))
    blocks = range(0, width, 2 * _BLOCK)
    turns = [  # of each 128 bits the lower columns, of each the upper: of k and of k + 1
        [row * width + at + part + j for at in blocks for j in range(_BLOCK) for row in range(2)]
        for part in (0, _BLOCK)
    ]

    def pair(k: Expr) -> None:
        for i in range(2):
            prefetch(weight, tile, k + i, rows_ahead(weight), strip)
        both = [B.bind(weight.vload([tile, k + i, 0], f"uint16x{width}")) for i in range(2)]
        columns = [B.bind(T.Shuffle(both, order)) for order in turns]
        with B.unroll(rows) as r:
            two = T.reinterpret("int32", x.vload([row + r, k], "uint16x2"))
            spread = B.bind(T.reinterpret(f"uint16x{width}", T.Broadcast(two, lanes)))
            for c in range(COLUMN_VECTORS):
                i = r * COLUMN_VECTORS + c
                sums.set(i, dot2(sums.get(i), columns[c], spread))

    pairs = packing.k // 2
    with B.serial(pairs // _UNROLL) as i, B.unroll(_UNROLL) as j:
        pair((i * _UNROLL + j) * 2)
    for last in range(pairs // _UNROLL * _UNROLL, pairs):
        pair(T.int64(2 * last))
    _in_order(sums, rows, lanes)
    output.store(sums, rows, row, tile, strip)


def _in_order(sums: Registers, rows: int, lanes: int) -> None:
    """Undo the interleaving of the two registers' column blocks."""
    for r in range(rows):
        places = [r * COLUMN_VECTORS + c for c in range(COLUMN_VECTORS)]
        both = [B.bind(sums.get(i)) for i in places]
        of_both = [
            part * lanes + block + j
            for block in range(0, lanes, _BLOCK)
            for part in range(COLUMN_VECTORS)
            for j in range(_BLOCK)
        ]
        for c, i in enumerate(places):
            sums.set(i, T.Shuffle(both, of_both[c * lanes : (c + 1) * lanes]))
