"""y = x @ W.T for many rows of x, in tiles: any device.

A workgroup of 16 x 16 threads makes a tile of up to 128 x 64 of y, a thread height x 4 of it. Along
K, 32 columns at a time (16 in f32) of x and of the dequantized W are put into workgroup memory;
there rows lie along K with a gap of four, so that the threads of a subgroup, which read four
neighbours of different rows, meet in no bank. With f16 the tiles are f16 (half the traffic, which
bounds this kernel), x clamped to its range; products and sums are f32.

With `half_products` they are f16 too: four sums a value of y, of which each takes every fourth of
the 32 columns; two of them are added in f16, and the rest to the sum in f32. GPUs compute f16 in
pairs, and need not convert each value before. Sums of 16 products beyond f16's range are infinite.

A thread reads 4 * (height + 4) values for 16 * height multiply-adds. Workgroup memory of the
largest tile: 192 rows of 36 f16 or 20 f32, 13.5 or 15 KiB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, keep, load
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import WorkItems
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    clamp_f16,
    int32,
    launch,
    real,
    shared,
    when,
)

WIDTH = 4
"""Columns of y that a thread makes."""

_GAP = 4


def side(gpu: Gpu) -> int:
    """Threads along each edge of a workgroup."""
    return 16 if gpu.threads >= 256 else 8


def gemm(gpu: Gpu, reader: WeightReader, work: WorkItems, height: int) -> None:
    """Emit the launch: tiles of side * height rows of x by side * 4 rows of W."""
    edge = side(gpu)
    depth, dtype = (32, "float16") if gpu.f16 else (16, "float32")
    rows, columns = edge * height, edge * WIDTH
    blocks = ceil_div(work.n_out, columns), work.blocks(rows)
    with launch(blocks, (edge, edge)) as (block, block_row, tx, ty):
        x_tile = shared((rows, depth + _GAP), dtype)
        w_tile = shared((columns, depth + _GAP), dtype)
        thread = bind(ty * edge + tx)
        first_column = bind(block * columns)
        found = work.tile(block_row, rows, thread, edge * edge)
        sums = Local(height * WIDTH)
        for i in range(height * WIDTH):
            sums[i] = real(0)
        with T.serial(ceil_div(reader.units, depth // UNIT)) as step:
            first = bind(int32(step) * (depth // UNIT))

            def x_unit(row: Expr, unit: Expr) -> list[Expr]:
                return _x_unit(reader, dtype, work.x, found.x_row(row), first + unit)

            def w_unit(row: Expr, unit: Expr) -> list[Expr]:
                at = found.w_row(first_column + row)
                return reader.weights(at, bind(tirx.min(first + unit, int32(reader.units - 1))))

            _fill(x_tile, rows, depth, thread, edge * edge, x_unit)
            _fill(w_tile, columns, depth, thread, edge * edge, w_unit)
            barrier()
            multiply = _multiply_halves if gpu.half_products and gpu.f16 else _multiply
            multiply(x_tile, w_tile, depth, height, edge, tx, ty, sums)
            barrier()
        for i in range(height):
            m = bind(ty + i * edge)
            for j in range(WIDTH):
                found.write(m, bind(first_column + tx + j * edge), sums[i * WIDTH + j])


def _x_unit(reader: WeightReader, dtype: str, x: Any, row: Any, unit: Expr) -> list[Expr]:
    """Eight values of x, 0 beyond its row, within the range of the tile's type."""
    inside = bind(tirx.min(unit, int32(reader.units - 1)))
    values = load(x, row, inside * UNIT, UNIT)
    if dtype == "float16":
        values = [clamp_f16(v) for v in values]
    if reader.units % 4:  # then a tile may reach beyond the row
        values = [T.Select(unit < reader.units, v, real(0)) for v in values]
    return values


def _fill(
    tile: Any,
    rows: int,
    depth: int,
    thread: Expr,
    threads: int,
    unit: Callable[[Expr, Expr], list[Expr]],
) -> None:
    """Write unit(row, unit) into the tile for all its units, distributed over the threads."""
    per_row = depth // UNIT
    total = rows * per_row
    dtype = str(tile.dtype)

    def one(index: Expr) -> None:
        row, u = bind(index // per_row), bind(index % per_row)
        registers = Local(UNIT, dtype)
        for j, value in enumerate(unit(row, u)):
            registers[j] = value.astype(dtype)
        for j in range(0, UNIT, 4):
            with T.vectorized(4) as v:
                store(tile, registers[int32(v) + j], row, u * UNIT + (int32(v) + j))

    with T.serial(ceil_div(total, threads)) as i:
        index = bind(int32(i) * threads + thread)
        if total % threads:
            with when(index < total):
                one(index)
        else:
            one(index)


def _multiply(
    x_tile: Any,
    w_tile: Any,
    depth: int,
    height: int,
    edge: int,
    tx: Expr,
    ty: Expr,
    sums: Local,
) -> None:
    """Add the products of the tiles."""
    with T.serial(depth // 4) as step:
        k = int32(step) * 4  # not bound: TVM must see that it is a multiple of four
        weights = [_four(w_tile, tx + j * edge, k) for j in range(WIDTH)]
        for i in range(height):
            values = _four(x_tile, ty + i * edge, k)
            for j in range(WIDTH):
                total = sums[i * WIDTH + j]
                for value, weight in zip(values, weights[j], strict=True):
                    total = total + value * weight
                sums[i * WIDTH + j] = total


def _multiply_halves(
    x_tile: Any,
    w_tile: Any,
    depth: int,
    height: int,
    edge: int,
    tx: Expr,
    ty: Expr,
    sums: Local,
) -> None:
    """Add the products of the tiles, which are multiplied and added up in f16."""
    halves = [Local(4, "float16") for _ in range(height * WIDTH)]
    for four in halves:
        _store_four(four, T.Broadcast(T.float16(0), 4))
    with T.serial(depth // 4) as step:
        k = int32(step) * 4
        weights = [_load_four(w_tile, tx + j * edge, k) for j in range(WIDTH)]
        for i in range(height):
            values = _load_four(x_tile, ty + i * edge, k)
            for j in range(WIDTH):
                four = halves[i * WIDTH + j]
                _store_four(four, T.call_extern("float16x4", "fma", values, weights[j], _all(four)))
    for i, four in enumerate(halves):
        even, odd = ((four[j] + four[j + 2]).astype("float32") for j in (0, 1))
        sums[i] = sums[i] + (even + odd)


def _load_four(tile: Any, row: Expr, k: Expr) -> Expr:
    """Four neighbours of a row of a tile, as a vector of f16 in registers."""
    registers = Local(4, "float16")
    _store_four(registers, tirx.BufferLoad(tile, [row, tirx.Ramp(k, 1, 4)]))
    return _all(registers)


def _all(four: Local) -> Expr:
    return tirx.BufferLoad(four.buffer, [tirx.Ramp(int32(0), 1, 4)])


def _store_four(four: Local, value: Expr) -> None:
    T.buffer_store(four.buffer, value, [tirx.Ramp(int32(0), 1, 4)])


def _four(tile: Any, row: Expr, k: Expr) -> list[Expr]:
    """Four neighbours of a row of a tile, as f32."""
    registers = Local(4, str(tile.dtype))
    with T.vectorized(4) as v:
        store(registers.buffer, tile[row, k + int32(v)], int32(v))
    if str(tile.dtype) == "float32":
        return [registers[i] for i in range(4)]
    return keep([registers[i].astype("float32") for i in range(4)])
