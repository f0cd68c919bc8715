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
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import SHARED_TILES, SUMS, Rounded
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, when

_MULTIPROCESSORS = 132
"""Of an H100."""
_LEAST_STEPS = 4
"""Of a workgroup that shares out K: with fewer, sums would be as many bytes as W."""
_THREADS = LANES * WARPS

Write = Callable[[Expr, Expr], None]
"""Called with a cell of the tile and its sum."""
After = Callable[[Expr], None]
"""Called with a tile's number over the rows of x, by the workgroup that wrote its products, all of
whose threads do so."""


@dataclass(frozen=True)
class SplitK:
    """Tiles `columns` by `rows` (of y, as many as are known: an expression), with `steps` each."""

    tile: Tile
    steps: int
    columns: int
    rows: Expr
    allowed: bool = True
    others: int = 0
    """Columns of tiles of the launch's other weights."""
    first: int = 0
    """Of these columns, counted with the others."""

    @property
    def all_columns(self) -> int:
        """With those of the other weights."""
        return self.columns + self.others

    @property
    def most(self) -> int:
        """Parts of all tiles of a column together."""
        cells = self.tile.rows * self.tile.columns
        parts = min(_MULTIPROCESSORS * self.tile.workgroups, SUMS // cells)
        columns = self.all_columns
        return parts // columns if self.allowed and columns <= SHARED_TILES else 0

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
        return self.all_columns, self.rows * self.parts

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
        self,
        put: Callable[[Write], None],
        found: TileRows,
        x: Rounded,
        thread: Expr,
        after: After | None = None,
    ) -> None:
        """Emit found.write of all sums. put: emits the writing of this workgroup's. after: emits
        what follows once the tile is written."""
        columns = self.split.tile.columns
        first = bind(self.column * columns)

        def write(at: Expr, value: Expr) -> None:
            found.write(bind(at // columns), bind(first + at % columns), value)

        def whole() -> None:
            put(write)
            if after is not None:
                after(self.row)

        if isinstance(self.parts, int):
            if self.parts == 1:
                whole()
            else:
                self._exchange(put, write, x, thread, after)
            return
        with T.If(self.parts > 1):
            with T.Then():
                self._exchange(put, write, x, thread, after)
            with T.Else():
                whole()

    def _exchange(
        self,
        put: Callable[[Write], None],
        write: Write,
        x: Rounded,
        thread: Expr,
        after: After | None,
    ) -> None:
        split, tile = self.split, self.split.tile
        cells = tile.rows * tile.columns
        number = bind(self.row * split.all_columns + split.first + self.column)
        of_tile = bind(number * self.parts * cells)
        own = bind(of_tile + self.part * cells)
        put(lambda at, value: store(x.sums, value, own + at))
        last = async_copy.is_last(x.counters[number], self.parts)
        with when(last):
            with T.serial(tile.rows * tile.columns // _THREADS) as i:
                at, total = bind(int32(i) * _THREADS + thread), Local()
                total[0] = x.sums[of_tile + at]
                with T.serial(self.parts - 1) as other:
                    total[0] = total[0] + x.sums[of_tile + (int32(other) + 1) * cells + at]
                write(at, total[0])
            if after is not None:
                after(self.row)
