"""What warps do where both W and x are 8-bit floats (`fp8_rows.py`): no weight is unpacked.

A lane's eight words of W of a block, 128 columns, are the left sides of four `mma.m16n8k32`. Their
sums begin at 0 and are added to those of all of K in float32, with the scales of W and x where both
have groups; tensor cores keep fewer bits. Scales of a row and a token wait for the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma, mma_fp8
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import (
    BLOCK_WORDS,
    LANE_WORDS,
    STRETCHES,
    Fp8Row,
)
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_products import THREADS, Products
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import COLUMNS, Tile
from mlcc_compiler.kernels.gpu.linear.fragments.lane import SUMS, Lane
from mlcc_compiler.kernels.gpu.linear.fragments.order import EDGE, UNITS
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import Rounded
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows, WorkItems
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, real, when

_WORD = 4
_VECTOR = 4
"""Words of a copy or a load."""
ROW_BYTES = BLOCK_WORDS * _WORD
_COPIES = BLOCK_WORDS // _VECTOR
"""Of a row of x in a step."""


class Fp8FewRows:
    """The sums of a warp for up to 8 rows of x, which it reads from memory."""

    def __init__(
        self,
        reader: WeightReader,
        work: WorkItems,
        found: TileRows,
        lane: Expr,
        tiles: list[Expr],
        row: Fp8Row,
    ) -> None:
        self.row, self.x, self.tiles, self.span = row, work.words, tiles, STRETCHES
        self.lane = Lane(reader, bind(lane // UNITS), bind(lane % UNITS))
        self.by_row = reader.packing.by_row
        self.first = bind(work.first_word(found.x_row(self.lane.g)) + self.lane.t * LANE_WORDS)
        self.of_scales = [
            bind(work.first_word(found.x_row(bind(self.lane.t * 2 + j)))) for j in range(2)
        ]
        """Where the rows of x begin whose sums this lane has."""
        self.sums = Local(len(tiles) * SUMS)
        for i in range(len(tiles) * SUMS):
            self.sums[i] = real(0)

    def add(self, chunks: Sequence[Expr]) -> None:
        """Add the products of some blocks; the words of all are loaded before."""
        weights = [
            [
                [self.lane.words(tile, half, chunk, 0, STRETCHES) for half in range(2)]
                for tile in self.tiles
            ]
            for chunk in chunks
        ]
        for chunk, of_tiles in zip(chunks, weights, strict=True):
            x: list[Expr] = []
            for at in range(0, LANE_WORDS, _VECTOR):
                x += mma.words(self.x[0, self.first + chunk * BLOCK_WORDS + at])
            scales = self._scales(self.row.scale_of(chunk)) if self.row.grouped else []
            for number, (upper, lower) in enumerate(of_tiles):
                rows = [[read(i)[0] for i in range(STRETCHES)] for read in (upper, lower)]
                self._promote(number, _block(rows, x), chunk, scales)

    def _scales(self, word: Expr) -> list[Expr]:
        """Those of the two rows of x."""
        found = [self.x[0, first + word] for first in self.of_scales]
        return [bind(T.reinterpret("float32", scale)) for scale in found]

    def _promote(self, number: int, raw: Local, chunk: Expr, scales: list[Expr]) -> None:
        tile, left = self.tiles[number], []
        if scales:
            stretch = bind(chunk * STRETCHES)
            left = [self.lane.scaling(tile, half, stretch, int32(0)).scale for half in range(2)]
        for j in range(SUMS):
            at, value = number * SUMS + j, raw[j]
            value = value * (left[j // 2] * scales[j % 2]) if scales else value
            self.sums[at] = self.sums[at] + value

    def put(self, cells: Any, warp: Expr) -> None:
        """Store the sums, [x row][W row]."""
        right = [] if self.row.grouped else self._scales(int32(self.row.first_scale))
        for i, tile in enumerate(self.tiles):
            left = [self.lane.row_scale(tile, half) for half in range(2)] if right else []
            for j in range(SUMS):
                n = self.lane.g + (j // 2 * 8 + i * EDGE)
                at = (self.lane.t * 2 + j % 2) * (len(self.tiles) * EDGE) + n
                total = self.sums[i * SUMS + j]
                total = total * (left[j // 2] * right[j % 2]) if right else total
                store(cells, total, warp, at)


class Fp8Activations:
    """The copies of a thread into the tile of x, 16 bytes each, and of a scale. Rows with an odd
    number have neighbouring 16 bytes exchanged, which keeps the loads of a warp in different
    banks."""

    period = 2
    """Rows whose 16 bytes are exchanged differently."""

    def __init__(
        self, work: WorkItems, x: Rounded, found: TileRows, tile: Tile, thread: Expr, k: int
    ) -> None:
        assert tile.fp8 is not None
        self.pairs, self.tile, self.row, self.thread = x.pairs, tile, tile.fp8, thread
        self.first, unit = bind(thread // _COPIES), bind(thread % _COPIES)
        turned = T.bitwise_xor(unit, self.first % self.period)
        self.to = bind((self.first * ROW_BYTES + turned * (_VECTOR * _WORD)).astype("uint32"))
        self.cells = [
            bind(work.first_word(found.x_row(self._row(self.first + i))) + unit * _VECTOR)
            for i in range(0, tile.rows, THREADS // _COPIES)
        ]
        self.scale = bind(work.first_word(found.x_row(self._row(thread))))

    def _row(self, number: Expr) -> Expr:
        return bind(tirx.min(number, int32(self.tile.rows - 1)))

    def copy(self, step: Expr, address: Expr) -> None:
        """Start the copies of a step."""
        to, at = bind(address + self.to), bind(step * BLOCK_WORDS)
        for i, cell in enumerate(self.cells):
            down = T.uint32(i * (THREADS // _COPIES) * ROW_BYTES)
            with when(self.first + i * (THREADS // _COPIES) < self.tile.rows):
                async_copy.copy(to + down, self.pairs[0, cell + at], _VECTOR * _WORD)
        if self.row.grouped:
            with when(self.thread < self.tile.rows):
                to = address + (self.thread * _WORD + self.tile.rows * ROW_BYTES).astype("uint32")
                cell = self.pairs[0, self.scale + self.row.scale_of(step)]
                async_copy.copy(bind(to), cell, _WORD)


class Fp8Products(Products):
    """The sums of a warp: of 16 rows of W by all rows of x in the tile."""

    def __init__(
        self,
        reader: WeightReader,
        work: WorkItems,
        found: TileRows,
        tile: Tile,
        at: tuple[Expr, ...],
    ) -> None:
        super().__init__(reader, work, found, tile, at)
        assert tile.fp8 is not None
        self.fp8, self.work, self.found = tile.fp8, work, found
        slot = T.bitwise_xor(self.lane.t * 2, self.lane.g % 2)
        start = self.lane.g * ROW_BYTES + slot * (_VECTOR * _WORD)
        self.start = bind(start.astype("uint32"))
        """Where this lane's first words of x begin in a step."""

    def fetch(self, step: Expr) -> None:
        """Load a step's scales of W into the registers of `add`."""
        if not self.fp8.grouped:
            return
        stretch = bind(step * STRETCHES)
        for number, tile in enumerate(self.tiles):
            for half in range(2):
                (word,) = self.lane.scale_words(tile, half, stretch, int32(0))
                if (number, half) not in self.scales:
                    self.scales[number, half] = Local(1, "uint32"), 1
                self.scales[number, half][0][0] = word

    def add(self, step: Expr, address: Expr, following: Expr) -> None:
        """Add the products of a step."""
        (rows,), scales = self.rows(address), self.scales_of_w(0)
        self.fetch(following)
        with T.serial(self.tile.high) as at_h:
            h = int32(at_h)
            at = bind(address + self.start + (h * (COLUMNS * ROW_BYTES)).astype("uint32"))
            other = bind(T.bitwise_xor(at, T.uint32(_VECTOR * _WORD)))
            raw = _block(rows, async_copy.load(at, 4) + async_copy.load(other, 4))
            self.promote(h, [raw[j] for j in range(SUMS)], scales, address)

    def rows(self, address: Expr) -> list[list[list[list[Expr]]]]:
        """The words of W of a step: of each tile, of its rows g and g + 8, for each stretch."""
        found: list[list[list[list[Expr]]]] = [[[], []] for _ in self.tiles]
        for (number, half), _, _, count, at in self._words():
            of_lane = (self.thread * (_WORD * count) + at).astype("uint32")
            words = async_copy.load(bind(address + of_lane), count)
            found[number][half] += [words[i : i + 2] for i in range(0, count, 2)]
        return found

    def scales_of_w(self, number: int) -> list[Expr]:
        """Of rows g and g + 8 of a tile, in this step."""
        if not self.fp8.grouped:
            return []
        return [bind(T.reinterpret("float32", self.scales[number, i][0][0])) for i in range(2)]

    def promote(self, h: Any, raw: Sequence[Expr], scales: list[Expr], address: Expr) -> None:
        """Add a block's sums of eight rows of x, with the block's scales. h: which rows, counted
        for each tile of W."""
        right: list[Expr] = []
        if scales:
            below = h % self.tile.high * COLUMNS
            at = (self.lane.t * 2 + below + self.tile.rows * BLOCK_WORDS) * _WORD
            words = async_copy.load(bind(address + at.astype("uint32")), 2)
            right = [T.reinterpret("float32", word) for word in words]
        for j in range(SUMS):
            value = raw[j] * (scales[j // 2] * right[j % 2]) if scales else raw[j]
            self.sums[h * SUMS + j] = self.sums[h * SUMS + j] + value

    def _each(self, write: Callable[[Expr, Expr, Expr], None]) -> None:
        """write(row of x, row of W, sum), counted in the workgroup's tile."""
        for number, tile in enumerate(self.tiles):
            left = [self.lane.row_scale(tile, i) for i in range(2)]
            with T.serial(self.tile.high) as at_h:
                h = int32(at_h)
                for j in range(SUMS):
                    m = bind(h * COLUMNS + self.lane.t * 2 + j % 2)
                    n = (self.column * self.tile.wide + number) * EDGE
                    n = bind(n + self.lane.g + j // 2 * (EDGE // 2))
                    total = self.sums[(number * self.tile.high + h) * SUMS + j]
                    if not self.fp8.grouped:
                        first = self.work.first_word(self.found.x_row(m))
                        word = self.work.words[0, first + self.fp8.first_scale]
                        total = total * (left[j // 2] * T.reinterpret("float32", word))
                    write(m, n, bind(total))


def _block(rows: Sequence[Sequence[Sequence[Expr]]], x: Sequence[Expr]) -> Local:
    """The sums of a block: rows of W [g, g + 8][stretch][2] by a lane's words of x."""
    raw, (upper, lower) = Local(SUMS), rows
    cells, start = [raw[j] for j in range(SUMS)], [real(0)] * SUMS
    for i in range(STRETCHES):
        a = [upper[i][0], lower[i][0], upper[i][1], lower[i][1]]
        mma_fp8.multiply(cells, start, a, x[2 * i : 2 * i + 2])
        start = cells
    return raw
