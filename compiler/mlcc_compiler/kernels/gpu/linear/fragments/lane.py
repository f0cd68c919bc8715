"""A lane of a warp that multiplies weights stored for tensor cores: what it reads of W."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.linear.fragments import mma
from mlcc_compiler.kernels.gpu.linear.fragments.order import EDGE, STRETCH, Placed, TileRow
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.weight_reader import Scaling, WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32

LANES = 32
"""Of a warp."""
WARPS = 8
"""Of a workgroup."""
SUMS = 4
"""Of a lane, for 16 rows of W and 8 rows of x: rows g and g + 8 by columns 2 t and 2 t + 1."""
_ENLARGED, _ZEROS = 0x58005800, 0x80008000
"""Pairs of the float16 128 and -0."""
_VECTOR = 4
"""Words of a load."""


def follow(count: int, n_out: int, packing: GpuPacking) -> bool:
    """Whether none of `count` neighbouring tiles can be beyond the end: all follow from the first,
    in one register."""
    return n_out % (count * EDGE) == 0 and len(packing.parts) == 1


def tiles_of(
    found: TileRows, first: Expr, count: int, n_out: int, packing: GpuPacking
) -> list[Expr]:
    """Emit the places in W of `count` neighbouring tiles of 16 rows of `n_out`, from tile `first`
    on."""
    if follow(count, n_out, packing):
        start = bind(found.w_row(first * EDGE) // EDGE)
        return [start + i for i in range(count)]
    return [bind(found.w_row((first + i) * EDGE) // EDGE) for i in range(count)]


@dataclass(frozen=True)
class Lane:
    """Lane 4 g + t."""

    reader: WeightReader
    g: Expr
    t: Expr

    def words(
        self, tile: Expr, half: int, chunk: Expr, first: Expr, width: int
    ) -> Callable[[Expr], list[list[Expr]]]:
        """Emit the loads of the words of row g (half 0) or g + 8 for `width` stretches of a chunk,
        from its stretch `first` on. The result picks those of a stretch, plane by plane."""
        held, placed = [], self.reader.buffers[0]
        for region in placed.order.regions:
            unit = region.per_unit
            words = Local(width * unit, "uint32")
            start = region.start(chunk, self.g, half, self.t) + first * unit
            count = min(_VECTOR, width * unit)
            for at in range(0, width * unit, count):
                with T.vectorized(count) as v:
                    word = placed.buffer[tile, start + at + int32(v)]
                    store(words.buffer, word, int32(v) + at)
            held.append((words, unit))
        return lambda i: [[words[i * n + j] for j in range(n)] for words, n in held]

    def scaling(self, tile: Expr, half: int, stretch: Expr, part: Expr) -> Scaling:
        """Emit the scale of a stretch of row g or g + 8; part: which of two groups, if it has
        two."""
        return self.reader.scaling(TileRow(tile, self.g, half), self._group(stretch, part))

    def scale_words(self, tile: Expr, half: int, stretch: Expr, part: Expr) -> list[Expr]:
        """Emit the loads of `scaling` alone."""
        found: list[Expr] = []
        reader = self._read_through(lambda placed: _Recorded(placed, found))
        reader.scale_loads(TileRow(tile, self.g, half), self._group(stretch, part))
        return found

    def scaling_of(
        self, words: Sequence[Expr], stretch: Expr, part: Expr, factor: float
    ) -> Scaling:
        """`scaling` of words that `scale_words` loaded; factor: of the scale, for a table."""
        rest = iter(words)
        reader = self._read_through(lambda placed: _Replayed(placed, rest))
        return reader.scaling(None, self._group(stretch, part), factor)

    def group_scale(self, tile: Expr, half: int, stretch: Expr) -> Expr:
        """Emit the scale of this lane's group of a stretch, of NVFP4: 128 times it, twice, as
        float16."""
        row = TileRow(tile, self.g, half)
        return _in_pair(*self.reader.group_byte(row, self._group(stretch, self.t // 2)))

    def group_scale_of(self, words: Sequence[Expr], stretch: Expr) -> Expr:
        """`group_scale` of words that `scale_words` loaded."""
        rest = iter(words)
        reader = self._read_through(lambda placed: _Replayed(placed, rest))
        return _in_pair(*reader.group_byte(None, self._group(stretch, self.t // 2)))

    def row_scale(self, tile: Expr, half: int) -> Expr:
        """Emit what scales of row g or g + 8 have in common, of NVFP4."""
        return self.reader.row_scale(TileRow(tile, self.g, half))

    def _group(self, stretch: Expr, part: Expr) -> Expr:
        size = self.reader.packing.group
        if size < STRETCH:
            return stretch * (STRETCH // size) + part
        return stretch if size == STRETCH else tirx.floordiv(stretch, size // STRETCH)

    def _read_through(self, view: Callable[[Placed], Placed]) -> WeightReader:
        """The reader, with views of the buffers of scales."""
        reader = self.reader
        made = WeightReader(reader.gpu, reader.packing, [b.buffer for b in reader.buffers])
        codes, *scales = made.buffers
        made.buffers = [codes, *map(view, scales)]
        return made


def _in_pair(word: Expr, byte: Expr) -> Expr:
    twice = bind(mma.permuted(word, T.uint32(0), (byte * 0x11).astype("uint32")))
    return bind(
        mma.multiply_add(mma.halves_of_fp8(twice, "low"), T.uint32(_ENLARGED), T.uint32(_ZEROS))
    )


class _Recorded(Placed):
    """Keeps the words that are read."""

    def __init__(self, of: Placed, found: list[Expr]) -> None:
        super().__init__(of.buffer, of.order)
        self.found = found

    def region(self, number: int) -> Placed:
        made = _Recorded(self, self.found)
        made.of = self.order.regions[number]
        return made

    def __getitem__(self, at: tuple[Any, Any]) -> Any:
        self.found.append(bind(super().__getitem__(at)))
        return self.found[-1]


class _Replayed(Placed):
    """Yields words that were read before, in the same order."""

    def __init__(self, of: Placed, words: Any) -> None:
        super().__init__(of.buffer, of.order)
        self.words = words

    def region(self, number: int) -> Placed:
        return self

    def __getitem__(self, at: tuple[Any, Any]) -> Any:
        return next(self.words)
