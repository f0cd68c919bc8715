"""y = x @ W.T for up to 8 rows of x by tensor cores, from weights stored for them (`fragments.py`).

A warp multiplies 16 rows of W by 8 rows of x (`mma.m16n8k16`), also where x has fewer rows: that
takes fewer instructions than multiplying one row without tensor cores. x is rounded to float16,
sums are float32. The warps of a workgroup share out K and add up their sums at the end.

Two codes become two float16 by one operation: masked, and joined to the bits of 1024 (a code in the
lowest four bits is then 1024 + code) or of 64 (in the next four, 64 + code). The excess is the same
for all weights of a column, so it is taken off beforehand: the sums of a group begin with minus the
excess times the sum of the group's x. This is a product too, with a matrix of constants, and serves
all tiles of a warp. It costs no accuracy worth counting: a group's products are summed in float32
from there, at most 32 terms of 1039 |x|.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear import mma
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.fragments import EDGE, GROUP, LANES, span_of
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import WorkItems
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

COLUMNS = 8
"""Rows of x that are multiplied at once."""
_WARPS, _LANES = 8, 32
_SUMS = 4
"""Of a lane and a tile: two rows of W by two of x."""
_LOW, _HIGH = 0x64006400, 0x54005400
"""Pairs of the float16 1024 and 64."""
_TOO_MUCH = {_LOW: 0xE408E408, _HIGH: 0xD480D480}
"""Pairs of what is to be added to a code there, -(1024 + 8) and -(64 + 8)."""


def fragment_gemv(gpu: Gpu, reader: WeightReader, work: WorkItems) -> None:
    """Emit the launch: tiles of 8 rows of x and 16 of W."""
    tiles = _tiles(work.n_out)
    blocks = ceil_div(work.n_out, tiles * EDGE), work.blocks(COLUMNS)
    with launch(blocks, (_LANES, _WARPS)) as (block, y, lane, warp):
        thread = bind(warp * _LANES + lane)
        found = work.tile(y, COLUMNS, thread, _WARPS * _LANES)
        products = _Products(reader, work.x, found.x_row(bind(lane // LANES)), lane, tiles)
        chunks = reader.packing.k // (GROUP * products.span)
        first = bind(block * tiles)
        with T.serial(ceil_div(chunks, _WARPS)) as i:
            chunk = bind(int32(i) * _WARPS + warp)
            if chunks % _WARPS:
                with when(chunk < chunks):
                    products.add(first, chunk)
            else:
                products.add(first, chunk)
        cells = shared((_WARPS, tiles * EDGE * COLUMNS))
        products.put(cells, warp)
        barrier()
        with T.serial(ceil_div(tiles * EDGE * COLUMNS, _WARPS * _LANES)) as i:
            at = bind(int32(i) * (_WARPS * _LANES) + thread)
            with when(at < tiles * EDGE * COLUMNS):
                total = Local()
                total[0] = cells[0, at]
                for other in range(1, _WARPS):
                    total[0] = total[0] + cells[other, at]
                n = bind(first * EDGE + at % (tiles * EDGE))
                found.write(bind(at // (tiles * EDGE)), n, total[0])


def _tiles(n_out: int) -> int:
    """Tiles of 16 rows that a warp takes at once: two share the conversion of x."""
    return 2 if n_out >= 2 * EDGE * 128 else 1


class _Products:
    """The sums of a warp."""

    def __init__(
        self, reader: WeightReader, x: object, x_row: Expr, lane: Expr, tiles: int
    ) -> None:
        self.reader, self.x, self.x_row, self.tiles = reader, x, x_row, tiles
        self.span = span_of(reader.packing.k)
        self.team, self.t, self.lane = bind(lane // LANES), bind(lane % LANES), lane
        self.sums = Local(tiles * _SUMS)
        for i in range(tiles * _SUMS):
            self.sums[i] = real(0)

    def add(self, first: Expr, chunk: Expr) -> None:
        """Add the products of `span` groups of the tiles from `first` on."""
        last = int32(self.reader.packing.n // EDGE - 1)
        places = [bind(tirx.min(first + i, last)) for i in range(self.tiles)]
        codes = [self._codes(tile, chunk) for tile in places]
        scales = [self._scales(tile, chunk) for tile in places]
        for group in range(self.span):
            x = self._x(chunk * self.span + group)
            start = Local(_SUMS)
            for i in range(_SUMS):
                start[i] = real(0)
            for side, bits in enumerate((_LOW, _HIGH)):
                mma.multiply(start, 0, [T.uint32(_TOO_MUCH[bits])] * 4, x[2 * side : 2 * side + 2])
            for i in range(self.tiles):
                self._add_group(i, [half[group] for half in codes[i]], x, start)
                _scale(self.sums, i, self._raw, [half[group] for half in scales[i]])

    def _add_group(self, tile: int, words: list[Expr], x: list[Expr], start: Local) -> None:
        raw = Local(_SUMS)
        for i in range(_SUMS):
            raw[i] = start[i]
        pairs = [_pairs(word) for word in words]
        for side in range(2):
            a = [pairs[half][2 * side + place] for place in range(2) for half in range(2)]
            mma.multiply(raw, 0, a, x[2 * side : 2 * side + 2])
        self._raw = raw

    def _codes(self, tile: Expr, chunk: Expr) -> list[Local]:
        """The words of rows g and g + 8, one for each group."""
        buffer, found = self.reader.buffers[0].buffer, []
        size = EDGE * LANES
        for half in range(2):
            words = Local(self.span, "uint32")
            with T.vectorized(self.span) as v:
                at = (chunk * size + half * (size // 2) + self.lane) * self.span
                store(words.buffer, buffer[tile, at + int32(v)], int32(v))
            found.append(words)
        return found

    def _scales(self, tile: Expr, chunk: Expr) -> list[list[Expr]]:
        """Those of rows g and g + 8, one for each group."""
        buffer, words = self.reader.buffers[1].buffer, Local(self.span, "uint32")
        with T.vectorized(self.span) as v:
            at = (chunk * (EDGE // 2) + self.team) * self.span
            store(words.buffer, buffer[tile, at + int32(v)], int32(v))
        found: list[list[Expr]] = [[], []]
        for i in range(self.span):
            pair = bind(T.reinterpret("float16x2", words[i]))
            for j in range(2):
                found[2 * i // self.span].append(T.Shuffle([pair], [j]).astype("float32"))
        return found

    def _x(self, group: Expr) -> list[Expr]:
        """Unit t of a group as pairs: columns 0 and 2, 1 and 3, 4 and 6, 5 and 7."""
        values = load(self.x, self.x_row, (group * LANES + self.t) * UNIT, UNIT)
        pairs = Local(4, "uint32")
        for i, (low, high) in enumerate(((0, 2), (1, 3), (4, 6), (5, 7))):
            pairs[i] = mma.halves(values[low], values[high])
        return [pairs[i] for i in range(4)]

    def put(self, cells: object, warp: Expr) -> None:
        """Store the sums, [x row][W row]."""
        for i in range(self.tiles):
            for j in range(_SUMS):
                m = self.t * 2 + j % 2
                n = self.team + (j // 2 * 8 + i * EDGE)
                at = m * (self.tiles * EDGE) + n
                store(cells, self.sums[i * _SUMS + j], warp, at)


def _pairs(word: Expr) -> list[Expr]:
    """Codes 0 and 2, 1 and 3, 4 and 6, 5 and 7 of a word as float16, each so much too large."""
    pairs = Local(4, "uint32")
    after = bind(word >> T.uint32(8))
    for i, (bits, mask, eight, some) in enumerate(
        (
            (_LOW, 0x000F000F, 0x00080008, word),
            (_LOW, 0x000F000F, 0x00080008, after),
            (_HIGH, 0x00F000F0, 0x00800080, word),
            (_HIGH, 0x00F000F0, 0x00800080, after),
        )
    ):
        pairs[i] = mma.masked(some, mask, bits | eight)
    return [pairs[i] for i in range(4)]


def _scale(sums: Local, tile: int, raw: Local, scales: list[Expr]) -> None:
    for i in range(_SUMS):
        at = tile * _SUMS + i
        sums[at] = sums[at] + raw[i] * scales[i // 2]
