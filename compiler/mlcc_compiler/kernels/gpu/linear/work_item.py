"""What a matrix kernel works at: which rows of x meet which rows of W, and where products go.

The kernels (`gemv`, `gemm`, `tensor_core`) share out tiles and walk along K; a job says what a tile
is. This one is a whole linear's; a mixture of experts has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mlcc_compiler.ir._tvm import tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.workgroup import bind, ceil_div, int32, when

Finish = Callable[[Expr, Expr, Expr], None]
"""Called with (row of x, row of W, their product)."""


class TileRows(Protocol):
    """A tile: so many rows of x, and rows of W from 0 to the job's `n_out`."""

    def x_row(self, m: Expr) -> Any:
        """Emit the finding of row m, as `weight.load` takes it; any row where there is none."""

    def w_row(self, n: Expr) -> Expr:
        """Emit the finding of row n of W; any row where there is none."""

    def write(self, m: Expr, n: Expr, value: Expr) -> None:
        """Emit the writing of a product, if there is one."""


class WorkItems(Protocol):
    """All tiles."""

    @property
    def x(self) -> Any:
        """A buffer, or what `weight.load` reads like one."""

    @property
    def n_out(self) -> int:
        """Rows of W that a tile's rows of x meet."""

    def blocks(self, rows: int) -> Expr:
        """How many tiles of so many rows of x there may be."""

    def tile(self, block: Expr, rows: int, thread: Expr, threads: int) -> TileRows:
        """Tile number `block`, in a workgroup of that many threads. May have barriers."""


@dataclass(frozen=True)
class LinearWork:
    """Every row of x times every row of W."""

    x: Any
    n_out: int
    finish: Finish

    def blocks(self, rows: int) -> Expr:
        """Neighbouring rows make a tile."""
        return ceil_div(self.x.shape[0], rows)

    def tile(self, block: Expr, rows: int, thread: Expr, threads: int) -> TileRows:
        """Those from block * rows on."""
        return _RowTile(self, bind(block * rows), int32(self.x.shape[0]))


@dataclass(frozen=True)
class _RowTile:
    work: LinearWork
    first: Expr
    count: Expr

    def x_row(self, m: Expr) -> Expr:
        return bind(tirx.min(self.first + m, self.count - 1))

    def w_row(self, n: Expr) -> Expr:
        return bind(tirx.min(n, int32(self.work.n_out - 1)))

    def write(self, m: Expr, n: Expr, value: Expr) -> None:
        row = bind(self.first + m)
        with when(tirx.all(row < self.count, n < self.work.n_out)):
            self.work.finish(row, n, value)
