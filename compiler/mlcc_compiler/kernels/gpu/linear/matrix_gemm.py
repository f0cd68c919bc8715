"""y = x @ W.T for many rows of x on devices with half-precision matrix instructions.

Tiles of x and of the dequantized W are put into shared memory as f16 (x clamped to its range) and
multiplied by subgroups, sums in f32. While they are multiplied, the packed words and activations
of the next are on their way into registers; they are decoded into the same tiles afterwards. (Two
pairs of tiles would save one of two barriers, but TVM's ThreadSync, which refuses kernels that
lack one, cannot tell them apart.) Rows of a tile have a gap of 8 halves (16 bytes), which keeps the
eight rows that an instruction loads at once in different banks.

The instructions: `matrix_unit.py`. What wmma leaves on the table is Hopper's asynchronous wgmma.

Where subgroups share out K as well, their sums meet at the end. Shapes: `matrix_tile.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.matrix_tile import Tile, tile_for
from mlcc_compiler.kernels.gpu.linear.matrix_unit import UNITS, MatrixUnit
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


def matrix_gemm(gpu: Gpu, reader: WeightReader, work: WorkItems, rows: int) -> None:
    """Emit the launch: tiles of `rows` rows of x."""
    unit = UNITS[gpu.matrix_unit]
    tile = tile_for(rows, work.n_out, unit.edge)
    blocks = ceil_div(work.n_out, tile.columns), work.blocks(tile.rows)
    with launch(blocks, (gpu.subgroup, tile.subgroups)) as (block, block_row, lane, subgroup):
        thread = bind(subgroup * gpu.subgroup + lane)
        first_column = bind(block * tile.columns)
        threads = tile.subgroups * gpu.subgroup
        found = work.tile(block_row, tile.rows, thread, threads)
        fill = _Fill(reader, work.x, found, first_column, thread, threads, tile, unit.vector)
        products = _Products(unit, tile, subgroup)
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
        vector: int,
    ) -> None:
        self.reader, self.x, self.found = reader, x, found
        self.first_column, self.thread, self.threads = first_column, thread, threads
        self.tile, self.vector = tile, vector
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
            for first in range(0, UNIT, self.vector):
                with T.vectorized(self.vector) as v:
                    store(tile, registers[first + int32(v)], row, u * UNIT + first + int32(v))

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
    """The sums of each subgroup, in matrices of the device's instructions."""

    def __init__(self, unit: MatrixUnit, tile: Tile, subgroup: Expr) -> None:
        self.unit, self.tile, self.subgroup = unit, tile, subgroup
        self.row = bind(subgroup % tile.over_rows)
        self.column = bind(subgroup // tile.over_rows % tile.over_columns)
        self.slice = bind(subgroup // (tile.over_rows * tile.over_columns))
        self.x = unit.inputs("a", tile.high, "x")
        self.w = unit.inputs("b", tile.wide, "w")
        self.size = tile.edge**2
        self.cells = shared((tile.subgroups * self.size,))
        # In use from here on: TVM would lay it over the f16 tiles, and then refuse the types.
        store(self.cells, real(0), subgroup * self.size)
        self.sums = unit.sums(tile.high * tile.wide, "y")

    def add(self, x_tile: Any, w_tile: Any) -> None:
        """Add the products of the tiles; each subgroup takes its slice of their depth."""
        t = self.tile
        share = t.depth // t.over_depth
        for k in range(0, share, t.edge):
            column = bind(self.slice * share + k)
            for i in range(t.high):
                row = (self.row * t.high + i) * t.edge
                self.unit.load("a", self.x, i, x_tile, row * t.stride + column, t.stride)
            for j in range(t.wide):
                row = (self.column * t.wide + j) * t.edge
                at = row * t.stride + column
                self.unit.load("b", self.w, j, w_tile, at, t.stride, transposed=True)
            for i in range(t.high):
                for j in range(t.wide):
                    self.unit.multiply(self.sums, i * t.wide + j, self.x, i, self.w, j)

    def write(self, thread: Expr, threads: int, write: Callable[[Expr, Expr, Expr], None]) -> None:
        """Emit write(row, column, sum) for the tile: a matrix of every subgroup at a time."""
        t = self.tile
        for i in range(t.high):
            for j in range(t.wide):
                at = self.subgroup * self.size
                self.unit.store(self.sums, i * t.wide + j, self.cells, at, t.edge)
                barrier()
                self._write_matrices(i, j, thread, threads, write)
                barrier()

    def _write_matrices(
        self,
        i: int,
        j: int,
        thread: Expr,
        threads: int,
        write: Callable[[Expr, Expr, Expr], None],
    ) -> None:
        t = self.tile
        cells = t.over_rows * t.over_columns * self.size
        with T.serial(ceil_div(cells, threads)) as round_:
            index = bind(int32(round_) * threads + thread)
            if cells % threads:
                with when(index < cells):
                    self._write_cell(i, j, index, write)
            else:
                self._write_cell(i, j, index, write)

    def _write_cell(
        self, i: int, j: int, index: Expr, write: Callable[[Expr, Expr, Expr], None]
    ) -> None:
        """The sum of a cell over the subgroups that share out K."""
        t = self.tile
        matrices = t.over_rows * t.over_columns
        matrix, cell = bind(index // self.size), bind(index % self.size)
        total = Local()
        total[0] = self.cells[index]
        for part in range(1, t.over_depth):
            total[0] = total[0] + self.cells[index + part * matrices * self.size]
        row = (matrix % t.over_rows * t.high + i) * t.edge + cell // t.edge
        column = (matrix // t.over_rows * t.wide + j) * t.edge + cell % t.edge
        write(row, column, total[0])
