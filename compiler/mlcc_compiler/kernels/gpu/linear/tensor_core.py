"""y = x @ W.T for many rows of x on devices with 16x16x16 half-precision matrix instructions.

Tiles of x and of the dequantized W are put into shared memory as f16 (x clamped to its range) and
multiplied by subgroups, sums in f32. While they are multiplied, the packed words and activations
of the next are on their way into registers; they are decoded into the same tiles afterwards. (Two
pairs of tiles would save one of two barriers, but TVM's ThreadSync, which refuses kernels that
lack one, cannot tell them apart.) Rows of a tile have a gap of 8 halves (16 bytes), which keeps the
eight rows that an instruction loads at once in different banks.

The instructions are TVM's tvm_load_matrix_sync, tvm_mma_sync and their kin, which its CUDA
generator prints as nvcuda::wmma: one source for sm_75 to sm_90. They are used here rather than
dlight's matmul rule because that starts from a whole product of f16 matrices: dequantization, odd
sizes and f32 activations would have to be rediscovered from a schedule, where here they are lines
of a loop. What wmma leaves on the table is Hopper's asynchronous wgmma.

Where subgroups share out K as well, their sums meet at the end. Shapes: `tensor_tile.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.tensor_tile import EDGE, Tile, tile_for
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weights_of
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows, WorkItems
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

_CELLS = EDGE * EDGE


def tensor_core_gemm(gpu: Gpu, reader: WeightReader, work: WorkItems, rows: int) -> None:
    """Emit the launch: tiles of `rows` rows of x."""
    tile = tile_for(rows, work.n_out)
    blocks = ceil_div(work.n_out, tile.columns), work.blocks(tile.rows)
    with launch(blocks, (gpu.subgroup, tile.subgroups)) as (block, block_row, lane, subgroup):
        thread = bind(subgroup * gpu.subgroup + lane)
        first_column = bind(block * tile.columns)
        threads = tile.subgroups * gpu.subgroup
        found = work.tile(block_row, tile.rows, thread, threads)
        fill = _Fill(reader, work.x, found, first_column, thread, threads, tile)
        products = _Products(tile, subgroup)
        steps = ceil_div(reader.units, tile.depth // UNIT)
        fill.start(int32(0))()
        barrier()
        with T.serial(steps) as i:
            finish_fill = fill.start(bind(tirx.min(int32(i) + 1, int32(steps - 1))))
            products.add(fill.x_tile, fill.w_tile)
            barrier()
            finish_fill()
            barrier()

        def write(m: Expr, n: Expr, value: Expr) -> None:
            found.write(m, bind(first_column + n), value)

        products.write(thread, threads, write)


class _Fill:
    """Loads tiles of x and W into shared memory."""

    def __init__(
        self,
        reader: WeightReader,
        x: Any,
        found: TileRows,
        first_column: Expr,
        thread: Expr,
        threads: int,
        tile: Tile,
    ) -> None:
        self.reader, self.x, self.found = reader, x, found
        self.first_column, self.thread, self.threads, self.tile = (
            first_column,
            thread,
            threads,
            tile,
        )
        self.x_tile = shared((tile.rows, tile.stride), "float16")
        self.w_tile = shared((tile.columns, tile.stride), "float16")

    def start(self, step: Expr) -> Callable[[], None]:
        """Emit the loads of a step's tiles; calling the result emits the rest, into shared
        memory."""
        first = bind(step * (self.tile.depth // UNIT))
        parts = [
            *self._fetch(self.x_tile, self.tile.rows, lambda r, u: self._x_unit(r, first + u)),
            *self._fetch(self.w_tile, self.tile.columns, lambda r, u: self._w_unit(r, first + u)),
        ]

        def finish() -> None:
            for part in parts:
                part()

        return finish

    def _fetch(
        self, tile: Any, rows: int, unit: Callable[[Expr, Expr], Callable[[], list[Expr]]]
    ) -> list[Callable[[], None]]:
        """This thread's part of a tile's units: loads now, the rest later."""
        per_row = self.tile.depth // UNIT
        total = rows * per_row
        return [
            self._one(tile, bind(self.thread + i), total, per_row, unit)
            for i in range(0, total, self.threads)
        ]

    def _one(
        self,
        tile: Any,
        index: Expr,
        total: int,
        per_row: int,
        unit: Callable[[Expr, Expr], Callable[[], list[Expr]]],
    ) -> Callable[[], None]:
        row, u = bind(tirx.min(index, int32(total - 1)) // per_row), bind(index % per_row)
        decode = unit(row, u)

        def put() -> None:
            registers = Local(UNIT, "float16")
            for j, value in enumerate(decode()):
                registers[j] = value.astype("float16")
            with T.vectorized(UNIT) as v:
                store(tile, registers[int32(v)], row, u * UNIT + int32(v))

        def put_inside() -> None:
            if total % self.threads:
                with when(index < total):
                    put()
            else:
                put()

        return put_inside

    def _x_unit(self, row: Expr, unit: Expr) -> Callable[[], list[Expr]]:
        at = self.found.x_row(row)
        last = int32(self.reader.units - 1)
        values = load(self.x, at, bind(tirx.min(unit, last)) * UNIT, UNIT)
        if self.reader.units % (self.tile.depth // UNIT):  # a tile may reach beyond the row
            return lambda: [
                clamp_f16(T.Select(unit < self.reader.units, v, real(0))) for v in values
            ]
        return lambda: [clamp_f16(v) for v in values]

    def _w_unit(self, row: Expr, unit: Expr) -> Callable[[], list[Expr]]:
        at = self.found.w_row(self.first_column + row)
        last = int32(self.reader.units - 1)
        decode = self.reader.fetch(at, bind(tirx.min(unit, last)))
        return lambda: weights_of(decode())


class _Products:
    """The sums of each subgroup, in fragments of the matrix unit."""

    def __init__(self, tile: Tile, subgroup: Expr) -> None:
        self.tile, self.subgroup = tile, subgroup
        self.row = bind(subgroup % tile.over_rows)
        self.column = bind(subgroup // tile.over_rows % tile.over_columns)
        self.slice = bind(subgroup // (tile.over_rows * tile.over_columns))
        self.x = _fragments("matrix_a", tile.high, "float16")
        self.w = _fragments("matrix_b", tile.wide, "float16")
        self.sums = _fragments("accumulator", tile.high * tile.wide, "float32")
        self.cells = shared((tile.subgroups * _CELLS,))
        # In use from here on: TVM would lay it over the f16 tiles, and then refuse the types.
        store(self.cells, real(0), subgroup * _CELLS)
        for i in range(tile.high * tile.wide):
            edges = (EDGE, EDGE, EDGE)
            T.evaluate(T.tvm_fill_fragment(self.sums.data, *edges, i, real(0)))

    def add(self, x_tile: Any, w_tile: Any) -> None:
        """Add the products of the tiles; each subgroup takes its slice of their depth."""
        t = self.tile
        share = t.depth // t.over_depth
        for k in range(0, share, EDGE):
            column = bind(self.slice * share + k)
            for i in range(t.high):
                row = (self.row * t.high + i) * EDGE
                _load(self.x, i, x_tile, row * t.stride + column, t, "row_major")
            for j in range(t.wide):
                row = (self.column * t.wide + j) * EDGE
                at = row * t.stride + column
                _load(self.w, j, w_tile, at, t, "col_major")
            for i in range(t.high):
                for j in range(t.wide):
                    total = self.sums.data, i * t.wide + j
                    T.evaluate(T.tvm_mma_sync(*total, self.x.data, i, self.w.data, j, *total))

    def write(self, thread: Expr, threads: int, write: Callable[[Expr, Expr, Expr], None]) -> None:
        """Emit write(row, column, sum) for the tile: a fragment of every subgroup at a time."""
        t = self.tile
        for i in range(t.high):
            for j in range(t.wide):
                at = T.tvm_access_ptr("float32", self.cells.data, self.subgroup * _CELLS, _CELLS, 2)
                source = self.sums.data, EDGE, EDGE, EDGE, i * t.wide + j
                T.evaluate(T.tvm_store_matrix_sync(*source, at, EDGE, "row_major"))
                barrier()
                self._write_fragments(i, j, thread, threads, write)
                barrier()

    def _write_fragments(
        self,
        i: int,
        j: int,
        thread: Expr,
        threads: int,
        write: Callable[[Expr, Expr, Expr], None],
    ) -> None:
        t = self.tile
        fragments = t.over_rows * t.over_columns
        with T.serial(fragments * _CELLS // threads) as round_:
            index = bind(int32(round_) * threads + thread)
            fragment, cell = bind(index // _CELLS), bind(index % _CELLS)
            total = Local()
            total[0] = self.cells[index]
            for part in range(1, t.over_depth):
                total[0] = total[0] + self.cells[index + part * fragments * _CELLS]
            row = (fragment % t.over_rows * t.high + i) * EDGE + cell // EDGE
            column = (fragment // t.over_rows * t.wide + j) * EDGE + cell % EDGE
            write(row, column, total[0])


def _fragments(kind: str, count: int, dtype: str) -> Any:
    return T.alloc_buffer((count * _CELLS,), dtype, scope=f"wmma.{kind}")


def _load(fragments: Any, index: int, tile: Any, offset: Expr, t: Tile, layout: str) -> None:
    at = T.tvm_access_ptr("float16", tile.data, offset, EDGE * t.stride, 1)
    edges = EDGE, EDGE, EDGE
    T.evaluate(T.tvm_load_matrix_sync(fragments.data, *edges, index, at, t.stride, layout))
