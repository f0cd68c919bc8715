"""y = x @ W.T for up to 8 rows of x by tensor cores, from weights stored for them (`order.py`).

A warp multiplies 16 rows of W by 8 rows of x (`mma.m16n8k16`), also where x has fewer rows: that
takes fewer instructions than multiplying one row without tensor cores. x is rounded to float16,
sums are float32. The warps of a workgroup share out K and add up their sums at the end.

Codes become float16 numbers that are too large by an excess, the same for all
(`codes.py`). It is taken off beforehand: the sums of a stretch of 32 columns begin with
minus the excess times the sum of its x. This is a product too, with a matrix of constants, and
serves all tiles of a warp. It costs no accuracy worth counting: a stretch is summed in float32 from
there, 32 terms of at most 1279 |x|.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.fragments import mma
from mlcc_compiler.kernels.gpu.linear.fragments.codes import codes_of
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_products import Fp8FewRows
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import row_of
from mlcc_compiler.kernels.gpu.linear.fragments.lane import LANES, SUMS, WARPS, Lane, tiles_of
from mlcc_compiler.kernels.gpu.linear.fragments.order import EDGE, STRETCH, UNITS, span_of
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
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
    when,
)
from mlcc_compiler.quantization import Scheme

COLUMNS = 8
"""Rows of x that are multiplied at once."""
_AHEAD = 2
"""Chunks whose words a warp has on their way at a time, where K is whole ones."""
_ONES = 0x3C003C00
"""A pair of the float16 1."""


def fragment_gemv(gpu: Gpu, reader: WeightReader, work: WorkItems, columns: int = COLUMNS) -> None:
    """Emit the launch: tiles of `columns` rows of x, up to 8, and 16 of W."""
    form = reader.packing
    blocks = workgroups_of(work.n_out), work.blocks(columns)
    with launch(blocks, (LANES, WARPS)) as (block, y, lane, warp), registers([form]):
        cells = Cells([work.n_out])
        tile_products(reader, work, columns, (block, y, lane, warp), cells)


def workgroups_of(n_out: int) -> int:
    """Workgroups of a tile of x."""
    return -(-n_out // (_tiles(n_out) * EDGE))


def columns_of_workgroup(n_out: int) -> int:
    """Rows of W that a workgroup multiplies."""
    return _tiles(n_out) * EDGE


class Cells:
    """Workgroup memory of `tile_products`, for the widest of several weights.

    sizes: rows of each weight; a workgroup multiplies one of them at a time.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sums = shared((WARPS, max(map(columns_of_workgroup, sizes)) * COLUMNS))
        self.column = shared((1,), "int32")
        """The first row of W, which else would take a register during the products."""


def tile_products(
    reader: WeightReader,
    work: WorkItems,
    columns: int,
    at: tuple[Expr, ...],
    cells: Cells,
) -> None:
    """Emit the work of workgroup at[0] on the tile at[1] of x, for lane at[2] of warp at[3]."""
    block, y, lane, warp = at
    tiles = _tiles(work.n_out)
    thread = bind(warp * LANES + lane)
    found = work.tile(y, columns, thread, WARPS * LANES)
    first = bind(block * tiles)
    store(cells.column, first * EDGE, 0)
    of_w = tiles_of(found, first, tiles, work.n_out, reader.packing)
    products: _Products | Fp8FewRows
    if fp8 := row_of(reader.gpu, reader.packing):
        products = Fp8FewRows(reader, work, found, lane, of_w, fp8)
    else:
        products = _Products(reader, work.x, found, lane, of_w)
    chunks = reader.packing.k // (STRETCH * products.span)
    ahead = 1 if chunks % (_AHEAD * WARPS) else _AHEAD
    with T.serial(ceil_div(chunks, ahead * WARPS)) as i:
        some = [bind((int32(i) * ahead + j) * WARPS + warp) for j in range(ahead)]
        if chunks % WARPS:
            with when(some[0] < chunks):
                products.add(some)
        else:
            products.add(some)
    products.put(cells.sums, warp)
    barrier()
    column = bind(cells.column[0])
    with T.serial(ceil_div(tiles * EDGE * columns, WARPS * LANES)) as i:
        at_cell = bind(int32(i) * (WARPS * LANES) + thread)
        with when(at_cell < tiles * EDGE * columns):
            total = Local()
            total[0] = cells.sums[0, at_cell]
            for other in range(1, WARPS):
                total[0] = total[0] + cells.sums[other, at_cell]
            n = bind(column + at_cell % (tiles * EDGE))
            found.write(bind(at_cell // (tiles * EDGE)), n, total[0])


def registers(packings: Sequence[GpuPacking], paired: bool = False) -> Any:
    """A bound of registers where ptxas would take a few too many for two workgroups on a
    multiprocessor, of which one computes while the other waits for its words; where joined planes
    take more, as many as there are for one. paired: x is given in pairs."""
    bounds = {_workgroups(packing.scheme, paired) for packing in packings}
    least = min(bounds - {0}, default=0)
    return mma.workgroups(least) if least else nullcontext()


def _workgroups(how: Scheme, paired: bool) -> int:
    """On a multiprocessor; 0 = no bound is needed."""
    if how.bits in (5, 6) and not how.table:
        return 1
    return 2 if (how.block and how.bits == 4) or (paired and how.table and how.bits == 5) else 0


def _tiles(n_out: int) -> int:
    """Tiles of 16 rows that a warp takes at once: two share the conversion of x."""
    return 2 if n_out >= 2 * EDGE * 128 else 1


class _Products:
    """The sums of a warp."""

    def __init__(
        self, reader: WeightReader, x: Any, found: TileRows, lane: Expr, tiles: list[Expr]
    ) -> None:
        self.reader, self.x, self.x_row = reader, x, found.x_row(bind(lane // UNITS))
        self.paired = str(x.dtype) == "uint32"
        if self.paired:
            width, unit = int(x.shape[1]), lane % UNITS * (UNIT // 2)
            self.x_row = bind(self.x_row * width + unit)
        self.tiles = tiles
        count = x.shape[0]
        self.span = span_of(reader.packing.k, reader.packing.scheme.bits)
        self.codes = codes_of(reader.packing, count)
        self.by_row = reader.packing.by_row
        self.excess = [] if self.codes.excess is None else self._held_excess(count)
        self.lane = Lane(reader, bind(lane // UNITS), bind(lane % UNITS))
        self.sums = _sums(len(tiles))

    def _held_excess(self, count: Expr) -> list[list[Expr]]:
        """The pairs of a matrix of constants, for each of the two sides."""
        pairs = sorted(set(self.codes.excess))
        excess = mma.held([pair for pair in pairs for _ in range(4)], count)
        return [excess[4 * pairs.index(pair) :][:4] for pair in self.codes.excess]

    def add(self, chunks: Sequence[Expr]) -> None:
        """Add the products of some chunks; the words of all are loaded before."""
        words = [
            [
                [self.lane.words(tile, half, chunk, 0, self.span) for half in range(2)]
                for tile in self.tiles
            ]
            for chunk in chunks
        ]
        for chunk, of_tiles in zip(chunks, words, strict=True):
            with T.serial(self.span) as at:
                i = int32(at)
                rows = [[read(i) for read in halves] for halves in of_tiles]
                self._add_stretch(chunk * self.span + i, rows)

    def _add_stretch(self, stretch: Expr, words: list[list[list[list[Expr]]]]) -> None:
        if self.reader.packing.scheme.is_float or self.by_row:
            self._add_weights(self._x(stretch), stretch, words)
            return
        parts = self._parts(self._x(stretch))
        starts = [(self._start(x), self._sum_of(x)) for x in parts]
        for number, tile in enumerate(self.tiles):
            pairs = [self.codes.pairs(row, self.lane.t) for row in words[number]]
            for part, x in enumerate(parts):
                start, offset = starts[part]
                raw = self._raw(pairs, x, start)
                scalings = [self.lane.scaling(tile, half, stretch, part) for half in range(2)]
                for j in range(SUMS):
                    at, scaling = number * SUMS + j, scalings[j // 2]
                    self.sums[at] = self.sums[at] + raw[j] * scaling.scale
                    if scaling.offset is not None and offset is not None:
                        self.sums[at] = self.sums[at] + offset[j] * scaling.offset

    def _add_weights(
        self, x: list[Expr], stretch: Expr, words: list[list[list[list[Expr]]]]
    ) -> None:
        """Add the products of weights that need no scale any more."""
        for number, tile in enumerate(words):
            sums = [self.sums[number * SUMS + j] for j in range(SUMS)]
            rows = [self.codes.pairs(row, self.lane.t) for row in tile]
            if self.reader.packing.scheme.is_nvfp4:
                scales = [self.lane.group_scale(self.tiles[number], i, stretch) for i in range(2)]
                rows = [self.codes.weights(*row, None) for row in zip(rows, scales, strict=True)]
            upper, lower = rows
            for at in (0, 2):
                a = [upper[at], lower[at], upper[at + 1], lower[at + 1]]
                mma.multiply(sums, sums, a, x[at : at + 2])

    def _parts(self, x: list[Expr]) -> list[list[Expr]]:
        """x for each scale of a stretch: of two groups of 16, whose lanes' numbers are 0 for the
        other."""
        if self.reader.packing.group % STRETCH == 0:
            return [x]
        found = []
        for part in range(2):
            own, pairs = self.lane.t // 2 == part, Local(len(x), "uint32")
            for i, pair in enumerate(x):
                pairs[i] = T.Select(own, pair, T.uint32(0))
            found.append([pairs[i] for i in range(len(x))])
        return found

    def _x(self, stretch: Expr) -> list[Expr]:
        """Unit t of a stretch in pairs, in the order of the codes."""
        if self.paired:  # the row is this lane's first word
            return mma.words(self.x[0, self.x_row + stretch * (UNITS * UNIT // 2)])
        values = load(self.x, self.x_row, (stretch * UNITS + self.lane.t) * UNIT, UNIT)
        pairs, order = Local(UNIT // 2, "uint32"), self.codes.columns
        for i in range(UNIT // 2):
            pairs[i] = mma.halves(values[order[2 * i]], values[order[2 * i + 1]])
        return [pairs[i] for i in range(UNIT // 2)]

    def _start(self, x: list[Expr]) -> Local | None:
        """What the sums of a stretch begin with: minus the excess of the codes, times x."""
        if not self.excess:
            return None
        return self._constants(x, self.excess)

    def _sum_of(self, x: list[Expr]) -> Local | None:
        """The sum of a stretch of x, where scalings have an offset."""
        if self.reader.packing.scheme.symmetric:
            return None
        return self._constants(x, [[T.uint32(_ONES)] * 4] * 2)

    def _constants(self, x: list[Expr], matrices: Sequence[Sequence[Expr]]) -> Local:
        sums, start = Local(SUMS), [real(0)] * SUMS
        for side, matrix in enumerate(matrices):
            mma.multiply(_cells(sums), start, matrix, x[2 * side : 2 * side + 2])
            start = _cells(sums)
        return sums

    def _raw(self, rows: list[list[Expr]], x: list[Expr], start: Local | None) -> Local:
        """The products of a stretch, unscaled."""
        raw = Local(SUMS)
        before = [real(0)] * SUMS if start is None else _cells(start)
        upper, lower = rows
        for side in range(2):
            at = 2 * side
            a = [upper[at], lower[at], upper[at + 1], lower[at + 1]]
            mma.multiply(_cells(raw), before, a, x[at : at + 2])
            before = _cells(raw)
        return raw

    def put(self, cells: Any, warp: Expr) -> None:
        """Store the sums, [x row][W row]."""
        for i, tile in enumerate(self.tiles):
            left = [self.lane.row_scale(tile, half) for half in range(2)] if self.by_row else []
            for j in range(SUMS):
                n = self.lane.g + (j // 2 * 8 + i * EDGE)
                at = (self.lane.t * 2 + j % 2) * (len(self.tiles) * EDGE) + n
                total = self.sums[i * SUMS + j]
                factor = self.codes.factor
                total = total if factor == 1 else total * real(factor)
                store(cells, total * left[j // 2] if left else total, warp, at)


def _cells(sums: Local) -> list[Expr]:
    return [sums[i] for i in range(SUMS)]


def _sums(tiles: int) -> Local:
    sums = Local(tiles * SUMS)
    for i in range(tiles * SUMS):
        sums[i] = real(0)
    return sums
