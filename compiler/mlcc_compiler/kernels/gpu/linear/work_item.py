"""Work of a matrix kernel: which rows of x multiply which rows of W, and where products go.

The kernels (`gemv`, `gemm`, `matrix_gemm`) divide tiles and loop over K; `WorkItems` defines the
tiles. `LinearWork` is a whole linear's; a mixture of experts has its own.
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
    """A tile: rows of x, and rows of W from 0 to the work's `n_out`."""

    def x_row(self, m: Expr) -> Any:
        """Emit the index of row m, as `dequantize.load` takes it; any row beyond the end."""

    def w_row(self, n: Expr) -> Expr:
        """Emit the index of row n of W; any row beyond the end."""

    def write(self, m: Expr, n: Expr, value: Expr) -> None:
        """Emit the store of a product, if it exists."""


class WorkItems(Protocol):
    """All tiles of a product."""

    @property
    def x(self) -> Any:
        """A buffer, or a view that `dequantize.load` can read."""

    def first_word(self, row: Any) -> Expr:
        """Where a row's words begin in x as `fragments/rounded.py` rounds it."""

    @property
    def words(self) -> Any:
        """The buffer of x as words, where it is given so."""

    @property
    def n_out(self) -> int:
        """Rows of W per tile."""

    def blocks(self, rows: int) -> Expr:
        """Upper bound of the number of tiles of `rows` rows of x."""

    def tile(self, block: Expr, rows: int, thread: Expr, threads: int) -> TileRows:
        """Tile number `block`, in a workgroup of `threads` threads. May contain barriers."""


@dataclass(frozen=True)
class LinearWork:
    """Every row of x times every row of W. x may be pairs of float16, or 8-bit floats, in words."""

    x: Any
    n_out: int
    finish: Finish

    @property
    def words(self) -> Any:
        return self.x

    def first_word(self, row: Expr) -> Expr:
        """Two numbers a word, or as x has them."""
        width = int(self.x.shape[1])
        return row * (width if str(self.x.dtype) == "uint32" else width // 2)

    def blocks(self, rows: int) -> Expr:
        """Neighbouring rows make a tile."""
        return ceil_div(self.x.shape[0], rows)

    def tile(self, block: Expr, rows: int, thread: Expr, threads: int) -> TileRows:
        """Rows from block * rows on."""
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
