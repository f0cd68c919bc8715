"""How workgroups share out K where a product has too few tiles for all multiprocessors.

Each workgroup of a tile stores the sums of some steps, and the last one that is done adds up those
of all, in order, so that results repeat to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import Tile
from mlcc_compiler.kernels.gpu.linear.fragments.lane import LANES, WARPS
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import COUNTERS, SUMS, Rounded
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, when

_MULTIPROCESSORS = 132
"""Of an H100."""
_LEAST_STEPS = 4
"""Of a workgroup that shares out K: with fewer, sums would be as many bytes as W."""
_THREADS = LANES * WARPS

Write = Callable[[Expr, Expr], None]
"""Called with a cell of the tile and its sum."""


@dataclass(frozen=True)
class SplitK:
    """Tiles `columns` by `rows` (of y, as many as are known: an expression), with `steps` each."""

    tile: Tile
    steps: int
    columns: int
    rows: Expr
    allowed: bool = True

    @property
    def most(self) -> int:
        """Parts of all tiles of a column together."""
        cells = self.tile.rows * self.tile.columns
        parts = min(_MULTIPROCESSORS * self.tile.workgroups, SUMS // cells)
        return parts // self.columns if self.allowed and self.columns <= COUNTERS else 0

    @property
    def parts(self) -> Expr:
        """Workgroups of a tile; a number if it is known."""
        if self.most < 2 or self.steps < 2 * _LEAST_STEPS:
            return 1
        if isinstance(self.rows, int):
            each = -(-self.steps // max(1, min(self.most // self.rows, self.steps // _LEAST_STEPS)))
            return -(-self.steps // each)
        shared = tirx.truncdiv(T.int32(self.most), tirx.max(int32(self.rows), 1))
        shared = tirx.max(tirx.min(shared, self.steps // _LEAST_STEPS), 1)
        each = tirx.truncdiv(self.steps - 1 + shared, shared)
        return tirx.truncdiv(self.steps - 1 + each, each)

    @property
    def grid(self) -> tuple[int, Expr]:
        """Workgroups."""
        return self.columns, self.rows * self.parts

    def place(self, column: Expr, y: Expr) -> PartOfTile:
        """The part of a workgroup; emits arithmetic."""
        if self.rows == 1 and isinstance(self.rows, int):
            row, part, rows = int32(0), y, 1
        elif isinstance(self.parts, int):
            row, part, rows = y, int32(0), self.rows
        else:
            rows = bind(int32(self.rows))
            row, part = bind(tirx.truncmod(y, rows)), bind(tirx.truncdiv(y, rows))
        parts = replace(self, rows=rows).parts
        parts = parts if isinstance(parts, int) else bind(parts)
        return PartOfTile(self, column, row, part, parts)


@dataclass(frozen=True)
class PartOfTile:
    """What a workgroup does."""

    split: SplitK
    column: Expr
    row: Expr
    part: Expr
    parts: Expr

    def steps(self) -> tuple[Expr, Expr]:
        """Emit the first step, and the one behind the last; there is one at least."""
        steps = self.split.steps
        if isinstance(self.parts, int) and self.parts == 1:
            return int32(0), int32(steps)
        each = bind(tirx.truncdiv(steps - 1 + int32(self.parts), int32(self.parts)))
        begin = bind(self.part * each)
        return begin, bind(tirx.min(begin + each, int32(steps)))

    def write(
        self, put: Callable[[Write], None], found: TileRows, x: Rounded, thread: Expr
    ) -> None:
        """Emit found.write of all sums. put: emits the writing of this workgroup's."""
        columns = self.split.tile.columns
        first = bind(self.column * columns)

        def write(at: Expr, value: Expr) -> None:
            found.write(bind(at // columns), bind(first + at % columns), value)

        if isinstance(self.parts, int):
            if self.parts == 1:
                put(write)
            else:
                self._exchange(put, write, x, thread)
            return
        with T.If(self.parts > 1):
            with T.Then():
                self._exchange(put, write, x, thread)
            with T.Else():
                put(write)

    def _exchange(
        self, put: Callable[[Write], None], write: Write, x: Rounded, thread: Expr
    ) -> None:
        tile, cells = self.split.tile, self.split.tile.rows * self.split.tile.columns
        number = bind(self.row * self.split.columns + self.column)
        of_tile = bind(number * self.parts * cells)
        own = bind(of_tile + self.part * cells)
        put(lambda at, value: store(x.sums, value, own + at))
        last = async_copy.is_last(x.counters[number], self.parts)
        with when(last), T.serial(tile.rows * tile.columns // _THREADS) as i:
            at, total = bind(int32(i) * _THREADS + thread), Local()
            total[0] = x.sums[of_tile + at]
            with T.serial(self.parts - 1) as other:
                total[0] = total[0] + x.sums[of_tile + (int32(other) + 1) * cells + at]
            write(at, total[0])
