"""y = x @ weight.T for float weights: f32 multiply-adds, the weights widened in registers.

bf16 widens by a shift, f16 by one conversion. The loops are in `tile.py`, the order of the weights
in memory in `packing.py`.
"""

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.tasks import TiledWeight, for_each_tile, rows_of_tile
from mlcc_compiler.kernels.cpu.linear.tile import (
    OPAQUE,
    Output,
    Registers,
    Strip,
    for_each_strip,
    prefetch,
    rows_ahead,
)
from mlcc_compiler.kernels.cpu.linear.weights.widen import widen
from mlcc_compiler.quantization import Scheme

Expr = Any

ROW_TILES = (6, 4, 2, 1)
"""12 sums and a row of weights fit 16 registers, and cover the latency of two multiply-adds."""

_UNROLL = 4
"""Steps along K per iteration of the inner loop."""


def linear_float(
    isa: Isa, n_out: int, k: int, scheme: Scheme, bias: bool, result: str = "float32"
) -> Expr:
    """PrimFunc(x[n, K], weight, [bias f32[N]], y result[n, N]); weight as `CpuPacking.tensors`."""
    packing = CpuPacking(n_out, k, scheme, isa)

    def tiles(x: Expr, weight: Expr, output: Output, n: Expr) -> None:
        def tile(rows: int, row: Expr, tile: Expr) -> None:
            float_tile(packing, x, weight, output, rows, row, tile)

        rows = rows_of_tile(tile, ROW_TILES, n)
        for_each_tile([TiledWeight(packing.tiles, rows)], n, 4 * k, ROW_TILES[0])

    return float_product(packing, isa.activation_dtype, bias, result, tiles)


def float_product(
    packing: CpuPacking,
    x_dtype: str,
    bias: bool,
    result: str,
    tiles: Callable[[Expr, Expr, Output, Expr], None],
) -> Expr:
    """The PrimFunc around the loops over tiles, which `tiles(x, weight, output, n)` emits."""
    (stored,) = packing.tensors
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
        x_handle = B.arg("x", T.handle())
        weight = B.arg("weight", B.buffer(stored.shape, stored.dtype))
        bias_buffer = B.arg("bias", B.buffer((packing.n,), "float32")) if bias else None
        y_handle = B.arg("y", T.handle())
        n = T.int64()
        x = B.match_buffer(x_handle, (n, packing.k), x_dtype)
        y = B.match_buffer(y_handle, (n, packing.n), result)
        tiles(x, weight, Output(packing, y, bias_buffer), n)
    return builder.get()


def float_tile(
    packing: CpuPacking, x: Expr, weight: Expr, output: Output, rows: int, row: Expr, tile: Expr
) -> None:
    """Emit one register tile: some rows of x times the columns of a tile of the weight."""

    def strip(strip: Strip) -> None:
        _float_strip(packing, x, weight, output, rows, row, tile, strip)

    for_each_strip(packing, rows, strip)


def _float_strip(
    packing: CpuPacking,
    x: Expr,
    weight: Expr,
    output: Output,
    rows: int,
    row: Expr,
    tile: Expr,
    strip: Strip,
) -> None:
    lanes, vectors = packing.isa.lanes, strip.vectors
    sums = Registers(rows * vectors, lanes, "float32")
    with B.unroll(rows * vectors) as i:
        sums.set(i, T.Broadcast(T.float32(0), lanes))

    def step(k: Expr) -> None:
        prefetch(weight, tile, k, rows_ahead(weight), strip)
        columns = [
            B.bind(widen(packing.isa, weight, [tile, k, strip.column(c)], lanes))
            for c in range(vectors)
        ]
        with B.unroll(rows) as r:
            value = B.bind(T.Broadcast(x[row + r, k], lanes))
            for c in range(vectors):
                i = r * vectors + c
                sums.set(i, sums.get(i) + columns[c] * value)

    whole = packing.k // _UNROLL
    with B.serial(whole) as i, B.unroll(_UNROLL) as j:
        step(i * _UNROLL + j)
    for k in range(whole * _UNROLL, packing.k):
        step(T.int64(k))
    output.store(sums, rows, row, tile, strip)
