"""y = x @ W.T for more than 8 rows of x by tensor cores, from weights stored for them.

A workgroup of eight warps makes a tile of y (`tile_for`). Its part of x is rounded to float16 once
and put into shared memory, in the order in which lanes take it, 16 bytes at a time. W goes from
memory to registers and from there to the tensor cores (`mma.m16n8k16`): a lane unpacks what it
multiplies, as float16 with its scale, and uses it for up to 64 rows of x. While a step is
multiplied, words and activations of the next are on their way into registers.

Few rows are bound by reading W, so that tiles are narrow and warps share out K as well; their sums
meet at the end. Rows of x in shared memory have a gap of 64 bytes, which keeps the 16-byte loads of
a warp in different banks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.fragments import mma
from mlcc_compiler.kernels.gpu.linear.fragments.codes import codes_of
from mlcc_compiler.kernels.gpu.linear.fragments.lane import LANES, SUMS, WARPS, Lane
from mlcc_compiler.kernels.gpu.linear.fragments.order import EDGE, STRETCH, UNITS, span_of
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows, WorkItems
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    int32,
    launch,
    real,
    shared,
)

_COLUMNS = 8
"""Rows of x of an instruction."""
_PAIRS = UNIT // 2
"""Words of a unit of x."""
_GAP = 16
"""Words between rows of x."""


@dataclass(frozen=True)
class Tile:
    """How the warps of a workgroup divide a tile of y, and K."""

    over_rows: int
    """Warps side by side over the rows of x."""
    over_columns: int
    """Over the rows of W."""
    over_depth: int
    """Over K."""
    high: int
    """Instructions of a warp over the rows of x, 8 each."""
    wide: int
    """Over the rows of W, 16 each."""
    width: int
    """Stretches of a warp in a step."""

    @property
    def rows(self) -> int:
        return self.over_rows * self.high * _COLUMNS

    @property
    def columns(self) -> int:
        return self.over_columns * self.wide * EDGE

    @property
    def depth(self) -> int:
        """Columns of x in a step."""
        return self.over_depth * self.width * STRETCH


def tile_for(rows: int, k: int) -> Tile:
    """The tile for that many rows of x, 16 to 128. A thread loads 32 numbers of x a step."""
    span = span_of(k)
    return {
        16: Tile(1, 2, 4, 2, 2, span),
        32: Tile(1, 4, 2, 4, 1, span),
        64: Tile(1, 4, 2, 8, 1, min(span, 2)),
        128: Tile(2, 4, 1, 8, 2, min(span, 2)),
    }[rows]


def fragment_gemm(gpu: Gpu, reader: WeightReader, work: WorkItems, rows: int) -> None:
    """Emit the launch: tiles of `rows` rows of x."""
    tile = tile_for(rows, reader.packing.k)
    blocks = ceil_div(work.n_out, tile.columns), work.blocks(tile.rows)
    with launch(blocks, (LANES, WARPS)) as (block, block_row, lane, warp):
        thread = bind(warp * LANES + lane)
        found = work.tile(block_row, tile.rows, thread, WARPS * LANES)
        x = _Activations(reader, work.x, found, thread, tile)
        products = _Products(reader, x, tile, block, warp, lane)
        steps = ceil_div(reader.packing.k, tile.depth)
        x.fetch(int32(0))()
        products.fetch(int32(0))()
        barrier()
        with T.serial(steps) as i:
            following = bind(tirx.min(int32(i) + 1, int32(steps - 1)))
            put_x, put_words = x.fetch(following), products.fetch(following)
            products.add(int32(i))
            barrier()
            put_x()
            put_words()
            barrier()
        products.write(found, thread)


class _Activations:
    """The tile of x in shared memory: pairs of float16 in the order of the codes."""

    def __init__(
        self, reader: WeightReader, x: Any, found: TileRows, thread: Expr, tile: Tile
    ) -> None:
        self.reader, self.x, self.found, self.thread, self.tile = reader, x, found, thread, tile
        self.order = codes_of(reader.packing, x.shape[0]).columns
        self.cells = shared((tile.rows, tile.depth // 2 + _GAP), "uint32")

    def fetch(self, step: Expr) -> Callable[[], None]:
        """Emit the loads of a step's tile; calling the result emits its stores."""
        units = self.tile.depth // UNIT
        parts = [
            self._unit(bind(self.thread + i), step, units)
            for i in range(0, self.tile.rows * units, WARPS * LANES)
        ]

        def put() -> None:
            for part in parts:
                part()

        return put

    def _unit(self, index: Expr, step: Expr, units: int) -> Callable[[], None]:
        row, u = bind(index // units), bind(index % units)
        unit, count = bind(step * units + u), self.reader.packing.k // UNIT
        at = self.found.x_row(row)
        values = load(self.x, at, tirx.min(unit, int32(count - 1)) * UNIT, UNIT)
        pairs, order = Local(_PAIRS, "uint32"), self.order

        def put() -> None:
            for i in range(_PAIRS):
                pair = mma.halves(values[order[2 * i]], values[order[2 * i + 1]])
                if count % units:  # a step may reach beyond the row
                    pair = T.Select(unit < count, bind(pair), T.uint32(0))
                pairs[i] = pair
            with T.vectorized(_PAIRS) as v:
                store(self.cells, pairs[int32(v)], row, u * _PAIRS + int32(v))

        return put


class _Products:
    """The sums of a warp."""

    def __init__(
        self, reader: WeightReader, x: _Activations, tile: Tile, block: Expr, warp: Expr, lane: Expr
    ) -> None:
        self.reader, self.x, self.tile = reader, x, tile
        self.lane = Lane(reader, bind(lane // UNITS), bind(lane % UNITS))
        self.codes = codes_of(reader.packing, x.x.shape[0])
        self.row = bind(warp % tile.over_rows)
        self.column = bind(warp // tile.over_rows % tile.over_columns)
        self.slice = bind(warp // (tile.over_rows * tile.over_columns))
        self.first = bind((block * tile.over_columns + self.column) * tile.wide)
        rows = [x.found.w_row((self.first + i) * EDGE) for i in range(tile.wide)]
        self.tiles = [bind(row // EDGE) for row in rows]
        self.sums = Local(tile.high * tile.wide * SUMS)
        for i in range(tile.high * tile.wide * SUMS):
            self.sums[i] = real(0)
        self.held = [
            [
                [Local(region.per_unit * tile.width, "uint32") for region in self._regions]
                for _ in range(2)
            ]
            for _ in self.tiles
        ]

    @property
    def _regions(self) -> Any:
        return self.reader.buffers[0].order.regions

    def _stretch(self, step: Expr) -> Expr:
        """The first stretch of this warp in a step, of the last ones where it would be beyond."""
        t = self.tile
        stretch = (step * t.over_depth + self.slice) * t.width
        stretches = self.reader.packing.k // STRETCH
        if stretches % (t.over_depth * t.width):
            return bind(tirx.min(stretch, int32(stretches - t.width)))
        return bind(stretch)

    def fetch(self, step: Expr) -> Callable[[], None]:
        """Emit the loads of a step's words; calling the result makes them those of `add`."""
        span, width = span_of(self.reader.packing.k), self.tile.width
        stretch = self._stretch(step)
        chunk = bind(stretch // span)
        first = 0 if width == span else stretch % span // width * width
        read = [
            [self.lane.words(tile, half, chunk, first, width) for half in range(2)]
            for tile in self.tiles
        ]

        def put() -> None:
            for number, halves in enumerate(read):
                for half, words in enumerate(halves):
                    for i in range(width):
                        for plane, some in enumerate(words(i)):
                            for j, word in enumerate(some):
                                self.held[number][half][plane][i * len(some) + j] = word

        return put

    def add(self, step: Expr) -> None:
        """Add the products of a step."""
        stretch = self._stretch(step)
        with T.serial(self.tile.width) as at_i:
            i = int32(at_i)
            weights = [self._weights(number, i, stretch + i) for number in range(self.tile.wide)]
            with T.serial(self.tile.high) as at_h:
                h = int32(at_h)
                x = self._pairs_of_x(h, i)
                for number, a in enumerate(weights):
                    at = (number * self.tile.high + h) * SUMS
                    cells = [self.sums[at + j] for j in range(SUMS)]
                    for side in range(2):
                        mma.multiply(cells, cells, a[side], x[2 * side : 2 * side + 2])

    def _weights(self, number: int, i: Expr, stretch: Expr) -> list[list[Expr]]:
        """A stretch of a tile of W as float16: the left side of two instructions."""
        rows = []
        for half in range(2):
            scaling = self.lane.scaling(self.tiles[number], half, stretch, self.lane.t // 2)
            scale = bind(scaling.scale * real(1 / self.codes.unit))
            offset = scaling.offset
            words = [
                [held[i * region.per_unit + j] for j in range(region.per_unit)]
                for held, region in zip(self.held[number][half], self._regions, strict=True)
            ]
            pairs = self.codes.pairs(words, self.lane.t)
            scales = bind(mma.halves(scale, scale))
            offsets = None if offset is None else bind(mma.halves(offset, offset))
            rows.append(self.codes.weights(pairs, scales, offsets))
        upper, lower = rows
        return [[upper[at], lower[at], upper[at + 1], lower[at + 1]] for at in range(0, _PAIRS, 2)]

    def _pairs_of_x(self, high: Expr, i: Expr) -> list[Expr]:
        t, pairs = self.tile, Local(_PAIRS, "uint32")
        row = (self.row * t.high + high) * _COLUMNS + self.lane.g
        unit = (self.slice * t.width + i) * UNITS + self.lane.t
        with T.vectorized(_PAIRS) as v:
            word = self.x.cells[row, unit * _PAIRS + int32(v)]
            store(pairs.buffer, word, int32(v))
        return [pairs[j] for j in range(_PAIRS)]

    def write(self, found: TileRows, thread: Expr) -> None:
        """Emit found.write of all sums; those of warps that share out K are added up before."""
        if self.tile.over_depth == 1:
            self._each(lambda m, n, value: found.write(m, bind(self._block + n), value))
            return
        t = self.tile
        cells = shared((t.over_depth, t.rows * t.columns), "uint32")

        def put(m: Expr, n: Expr, value: Expr) -> None:
            store(cells, T.reinterpret("uint32", value), self.slice, m * t.columns + n)

        self._each(put)
        barrier()
        with T.serial(ceil_div(t.rows * t.columns, WARPS * LANES)) as i:
            at = bind(int32(i) * (WARPS * LANES) + thread)
            total = Local()
            total[0] = T.reinterpret("float32", cells[0, at])
            for other in range(1, t.over_depth):
                total[0] = total[0] + T.reinterpret("float32", cells[other, at])
            found.write(bind(at // t.columns), bind(self._block + at % t.columns), total[0])

    @property
    def _block(self) -> Expr:
        """The workgroup's first row of W."""
        return (self.first - self.column * self.tile.wide) * EDGE

    def _each(self, write: Callable[[Expr, Expr, Expr], None]) -> None:
        """write(row of x, row of W, sum), counted in the workgroup's tile."""
        t, half = self.tile, EDGE // 2
        for number in range(t.wide):
            with T.serial(t.high) as at_h:
                h = int32(at_h)
                for j in range(SUMS):
                    m = (self.row * t.high + h) * _COLUMNS + self.lane.t * 2 + j % 2
                    n = (self.column * t.wide + number) * EDGE + self.lane.g + j // 2 * half
                    at = (number * t.high + h) * SUMS + j
                    write(bind(m), bind(n), self.sums[at])
