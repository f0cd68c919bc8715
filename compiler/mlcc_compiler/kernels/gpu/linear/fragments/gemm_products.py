"""What the warps of a tile of `gemm.py` do: copies of x and of the words of W, and products.

Words of W are read by the lane that copied them. A lane unpacks what it multiplies
(`mma.m16n8k16`), as float16 with its scale, and uses it for all rows of the tile. Rows of x with an
odd number have the halves of each 128 bytes exchanged in workgroup memory, which keeps the 16-byte
loads of a warp in different banks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma
from mlcc_compiler.kernels.gpu.linear.fragments.codes import codes_of
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import COLUMNS, Tile
from mlcc_compiler.kernels.gpu.linear.fragments.lane import (
    LANES,
    SUMS,
    WARPS,
    Lane,
    follow,
    tiles_of,
)
from mlcc_compiler.kernels.gpu.linear.fragments.order import EDGE, STRETCH, UNITS, Region, span_of
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import Rounded
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows, WorkItems
from mlcc_compiler.kernels.gpu.workgroup import Local, barrier, bind, int32, real, when

_WORD = 4
_PAIRS = UNIT // 2
"""Words of a unit of x."""
THREADS = LANES * WARPS


class Activations:
    """The copies of a thread into the tile of x, 16 bytes each."""

    def __init__(
        self, work: WorkItems, x: Rounded, found: TileRows, tile: Tile, thread: Expr, k: int
    ) -> None:
        self.tile, self.pairs, self.units = tile, x.pairs, k // UNIT
        self.of_step = tile.depth // UNIT
        self.rows_at_once, last = THREADS // self.of_step, tile.rows - 1
        row, self.unit = bind(thread // self.of_step), _kept(tile, thread % self.of_step)
        turned = T.bitwise_xor(self.unit, (row % 2) * UNITS)
        self.to = _kept(tile, row * tile.row_bytes + turned * (_PAIRS * _WORD))
        self.first, self.cells = row, []
        for i in range(0, tile.rows, self.rows_at_once):
            of_x = found.x_row(bind(tirx.min(row + i, int32(last))))
            self.cells.append(_kept(tile, work.first_word(of_x)))

    def copy(self, step: Expr, address: Expr) -> None:
        """Start the copies of a step."""
        to, valid = bind(address + self.to.astype("uint32")), None
        unit = bind(step * self.of_step + self.unit)
        if self.units % self.of_step:  # a step may reach beyond the row
            valid = bind(T.Select(unit < self.units, int32(16), int32(0)))
            unit = bind(tirx.min(unit, int32(self.units - 1)))
        column = bind(unit * _PAIRS)
        for i, at in enumerate(self.cells):
            down = T.uint32(i * self.rows_at_once * self.tile.row_bytes)
            cell = self.pairs[0, _kept(self.tile, at + column)]
            if self.rows_at_once <= self.tile.rows:
                async_copy.copy(to + down, cell, 16, valid)
                continue
            with when(self.first < self.tile.rows):
                async_copy.copy(to + down, cell, 16, valid)


class Products:
    """The sums of a warp."""

    def __init__(
        self,
        reader: WeightReader,
        work: WorkItems,
        found: TileRows,
        tile: Tile,
        at: tuple[Expr, ...],
    ) -> None:
        block, warp, lane = at
        self.reader, self.tile = reader, tile
        self.lane = Lane(reader, bind(lane // UNITS), bind(lane % UNITS))
        self.thread = bind(warp * LANES + lane)
        self.codes = codes_of(reader.packing, work.x.shape[0])
        self.row = bind(warp % tile.over_rows)
        self.column = bind(warp // tile.over_rows % tile.over_columns)
        self.slice = bind(warp // (tile.over_rows * tile.over_columns))
        first = bind((block * tile.over_columns + self.column) * tile.wide)
        self.tiles = tiles_of(found, first, tile.wide, work.n_out, reader.packing)
        placed, g, t = reader.buffers[0], self.lane.g, self.lane.t
        words = EDGE * placed.order.words
        neighbours = follow(tile.wide, work.n_out, reader.packing)
        self.cells: dict[tuple[int, Region], Expr] = {}
        for region, (number, place) in itertools.product(
            placed.order.regions, enumerate(self.tiles)
        ):
            if number and neighbours:
                self.cells[number, region] = self.cells[0, region] + number * words
            else:
                self.cells[number, region] = mma.kept(place * words + region.start(0, g, 0, t))
        """Where a lane's words begin in W."""
        self.span = span_of(reader.packing.k, reader.packing.scheme.bits)
        most = _PAIRS // max(region.per_unit for region in self._regions)
        self.together = min(self.span, tile.width, most)
        """Stretches of a copy."""
        self.sums = Local(tile.high * tile.wide * SUMS)
        for i in range(tile.high * tile.wide * SUMS):
            self.sums[i] = real(0)
        self.scales: dict[tuple[int, int], tuple[Local, int]] = {}
        self.of_x = [_kept(tile, self._of_x(i)) for i in range(tile.width)]
        """Where this lane's part of x begins in a step, for each of its stretches."""

    def _of_x(self, i: int) -> Expr:
        turned = T.bitwise_xor(self.slice * self.tile.width + i, self.lane.g % 2)
        row = self.row * self.tile.high * COLUMNS + self.lane.g
        return row * self.tile.row_bytes + (turned * UNITS + self.lane.t) * (_PAIRS * _WORD)

    def _run(self, step: Expr) -> Expr:
        """The stretches of this warp in a step, counted by `width` that they are; the last ones
        where they would be beyond the row."""
        t = self.tile
        run, runs = step * t.over_depth + self.slice, self.reader.packing.k // STRETCH // t.width
        return bind(tirx.min(run, int32(runs - 1)) if runs % t.over_depth else run)

    @property
    def _regions(self) -> Sequence[Region]:
        return self.reader.buffers[0].order.regions

    def _words(self) -> Iterator[tuple[tuple[int, int], Region, int, int, int]]:
        """((tile of W, half), region, first stretch, words, where they begin in a step) of each
        copy of a lane."""
        at = self.tile.x_bytes
        for place in itertools.product(range(self.tile.wide), range(2)):
            for region in self._regions:
                count = region.per_unit * self.together
                for i in range(0, self.tile.width, self.together):
                    yield place, region, i, count, at
                    at += THREADS * _WORD * count

    def copy(self, step: Expr, address: Expr) -> None:
        """Start the copies of a step's words, each lane its own."""
        stretch, codes = self._run(step) * self.tile.width, self.reader.buffers[0].buffer
        starts = {
            (region, i): bind(self._start(region, stretch + i))
            for region in self._regions
            for i in range(0, self.tile.width, self.together)
        }
        for (number, half), region, i, count, at in self._words():
            lower = half * (EDGE // 2) * region.lanes * region.words
            cell = codes[0, self.cells[number, region] + starts[region, i] + lower]
            to = bind(address + (self.thread * (_WORD * count) + at).astype("uint32"))
            async_copy.copy(to, cell, _WORD * count)

    def _start(self, region: Region, stretch: Expr) -> Expr:
        """Where the words of a stretch begin, behind those of the first."""
        return stretch // self.span * region.chunk + stretch % self.span * region.per_unit

    def arrive(self) -> None:
        """Emit what is due between the end of a step's copies and the barrier: nothing."""

    def finish(self) -> None:
        """Emit the wait for all products: `mma` has none."""

    def fetch(self, step: Expr) -> None:
        """Load a step's scales into the registers of `add`."""
        packing = self.reader.packing
        if packing.scheme.is_float or (packing.by_row and not packing.scheme.is_nvfp4):
            return
        stretch, width = self._run(step) * self.tile.width, self.tile.width
        for number, tile in enumerate(self.tiles):
            for half in range(2):
                found = [
                    self.lane.scale_words(tile, half, stretch + i, self.lane.t // 2)
                    for i in range(width)
                ]
                count = len(found[0])
                if (number, half) not in self.scales:
                    self.scales[number, half] = Local(count * width, "uint32"), count
                for i, words in enumerate(found):
                    for j, word in enumerate(words):
                        self.scales[number, half][0][i * count + j] = word

    def add(self, step: Expr, address: Expr, following: Expr) -> None:
        """Add the products of a step, and load the scales of the following one when its own are
        used."""
        stretch = self._run(step) * self.tile.width
        held: dict[tuple[tuple[int, int], int], list[list[Expr]]] = {}
        for place, region, first, count, at in self._words():
            of_lane = (self.thread * (_WORD * count) + at).astype("uint32")
            words, size = async_copy.load(bind(address + of_lane), count), region.per_unit
            for i in range(self.together):
                of_stretch = words[i * size : (i + 1) * size]
                held.setdefault((place, first + i), []).append(of_stretch)
        for i in range(self.tile.width):
            weights = [
                self._weights(number, i, stretch + i, held) for number in range(self.tile.wide)
            ]
            if i == self.tile.width - 1:
                self.fetch(following)
            at_x = bind(address + self.of_x[i].astype("uint32"))
            with T.serial(self.tile.high) as at_h:
                h = int32(at_h)
                down = (h * (COLUMNS * self.tile.row_bytes)).astype("uint32")
                x = async_copy.load(at_x + down, _PAIRS)
                for number, a in enumerate(weights):
                    at = (number * self.tile.high + h) * SUMS
                    cells = [self.sums[at + j] for j in range(SUMS)]
                    for side in range(2):
                        mma.multiply(cells, cells, a[side], x[2 * side : 2 * side + 2])

    def _weights(self, number: int, i: int, stretch: Expr, held: Any) -> list[list[Expr]]:
        """A stretch of a tile of W as float16: the left side of two instructions."""
        rows = []
        for half in range(2):
            pairs = self.codes.pairs(held[(number, half), i], self.lane.t)
            if self.reader.packing.scheme.is_float:
                rows.append(self.codes.moved(pairs))
                continue
            if self.reader.packing.by_row and not self.reader.packing.scheme.is_nvfp4:
                rows.append(pairs)
                continue
            scales, count = self.scales[number, half]
            words = [scales[i * count + j] for j in range(count)]
            if self.reader.packing.scheme.is_nvfp4:
                small = self.lane.group_scale_of(words, stretch)
                rows.append(self.codes.weights(pairs, small, None))
                continue
            factor = self.codes.enlarged / self.codes.unit
            scaling = self.lane.scaling_of(words, stretch, self.lane.t // 2, factor)
            scale = scaling.scale
            scales_of = bind(mma.halves(scale, scale))
            offset = scaling.offset
            offsets = None if offset is None else bind(mma.halves(offset, offset))
            rows.append(self.codes.weights(pairs, scales_of, offsets))
        upper, lower = rows
        return [[upper[at], lower[at], upper[at + 1], lower[at + 1]] for at in range(0, _PAIRS, 2)]

    def write(self, write: Callable[[Expr, Expr], None], ring: Expr) -> None:
        """Emit write(cell of the tile, sum) of all sums, cells by rows of x; those of warps that
        share out K are added up before."""
        t = self.tile
        if t.over_depth == 1:
            self._each(lambda m, n, value: write(bind(m * t.columns + n), value))
            return
        of_slice = t.rows * t.sums_stride

        def put(m: Expr, n: Expr, value: Expr) -> None:
            at = self.slice * of_slice + m * t.sums_stride + n
            async_copy.put(_at(ring, at), T.reinterpret("uint32", value))

        self._each(put)
        barrier()
        with T.serial(t.rows * t.columns // THREADS) as i:
            cell, total = bind(int32(i) * THREADS + self.thread), Local()
            at = bind(cell // t.columns * t.sums_stride + cell % t.columns)
            total[0] = _sum_at(ring, at)
            for other in range(1, t.over_depth):
                total[0] = total[0] + _sum_at(ring, at + other * of_slice)
            write(cell, total[0])

    def _each(self, write: Callable[[Expr, Expr, Expr], None]) -> None:
        """write(row of x, row of W, sum), counted in the workgroup's tile."""
        t, half, less = self.tile, EDGE // 2, 1 / self.codes.enlarged
        by_row = self.reader.packing.by_row
        for number, tile in enumerate(self.tiles):
            left = [self.lane.row_scale(tile, i) for i in range(2)] if by_row else []
            with T.serial(t.high) as at_h:
                h = int32(at_h)
                for j in range(SUMS):
                    m = (self.row * t.high + h) * COLUMNS + self.lane.t * 2 + j % 2
                    n = (self.column * t.wide + number) * EDGE + self.lane.g + j // 2 * half
                    at = (number * t.high + h) * SUMS + j
                    total = self.sums[at]
                    total = total if less == 1 else total * real(less)
                    write(bind(m), bind(n), total * left[j // 2] if left else total)


def _kept(tile: Tile, number: Expr) -> Expr:
    """An int32 that loops use, in a register of its own; the sums of 128 rows leave none for it."""
    return bind(number) if tile.rows >= 128 else mma.kept(number)


def _at(ring: Expr, word: Expr) -> Expr:
    """The address of a word of workgroup memory."""
    return bind(ring + (word * _WORD).astype("uint32"))


def _sum_at(ring: Expr, word: Expr) -> Expr:
    return T.reinterpret("float32", async_copy.load(_at(ring, word), 1)[0])
