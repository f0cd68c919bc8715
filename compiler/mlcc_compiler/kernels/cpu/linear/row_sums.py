"""Sums of the activations per group of weights, in the form a register tile takes them: integers
times a factor, as start values of its accumulators, or scaled float32, to be multiplied with
minima.

Computed by vectors along the row: one by one they would be as much work as the minima themselves.
For a register tile's rows only, right before it, or for all rows, once for all tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels.cpu.isa.vector_math import spread, vector
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.tile import for_rows

Expr = Any
At = Callable[[Any, Expr, Expr, Expr], tuple[Expr, Expr]]
"""(buffer, row, r, column) -> location of a column of the r-th row of codes from `row` on."""

_WORK = 4
"""Cost of a sum, in elements that are rounded."""


class RowSums:
    """Sums of the rows that it was last filled with, or of all."""

    def __init__(
        self, packing: CpuPacking, x_scale: Any, x_sum: Any, at: At, factor: int | None
    ) -> None:
        """`factor` None: float32, scaled."""
        self.p, self.x_scale, self.x_sum, self.at_row = packing, x_scale, x_sum, at
        self.factor, self.kind = factor, "float32" if factor is None else "int32"
        self.of_stretch = max(packing.rows.group // packing.group, 1)
        """Groups, and sums, per stretch."""
        self.all = packing.stretches * self.of_stretch
        self.count = min(packing.span * self.of_stretch, self.all)
        """Sums of a span."""
        self.lanes = 1
        while self.lanes * 2 <= min(packing.isa.lanes, self.count):
            self.lanes *= 2
        self.whole = False
        """Whether the sums of all rows are filled."""

    def fill_all(self, n: Expr) -> None:
        """Fill the sums of all n rows, in parallel: `fill` then does nothing."""
        self.buffer, self.whole = B.alloc_buffer((n, self.all), self.kind), True
        self.first = T.int64(0)

        def one(row: Expr) -> None:
            with B.serial(-(-self.all // self.lanes)) as i:
                place = B.bind(T.min(i * self.lanes, self.all - self.lanes))
                at = T.Ramp(place, 1, self.lanes) if self.lanes > 1 else place
                B.buffer_store(self.buffer, self._made(row, 0, place), [row, at])

        for_rows(n, _WORK * self.all, one)

    def read_all(self, n: Expr, pointer: Expr) -> None:
        """Read the sums of all n rows that another kernel has filled."""
        self.buffer = B.decl_buffer((n, self.all), self.kind, data=pointer)
        self.whole = True
        self.first = T.int64(0)

    def fill(self, rows: int, row: Expr, stretch: Expr) -> None:
        """Fill the sums of `rows` rows of codes from `row` on, for the span from `stretch` on.
        Beyond a row's or span's end, the last elements are repeated."""
        self.row = row if self.whole else 0
        if self.whole:
            return
        self.buffer = B.alloc_buffer((rows, self.count), self.kind)
        self.first = B.bind(T.min(stretch * self.of_stretch, self.all - self.count))
        with B.serial(-(-self.count // self.lanes)) as i:
            place = B.bind(T.min(i * self.lanes, self.count - self.lanes))
            with B.unroll(rows) as r:
                at = T.Ramp(place, 1, self.lanes) if self.lanes > 1 else place
                B.buffer_store(self.buffer, self._made(row, r, self.first + place), [r, at])

    def at(self, r: Expr, stretch: Expr, group: Expr) -> Expr:
        """The sum of a row and of a group in a stretch."""
        column = (group if self.of_stretch > 1 else stretch) - self.first
        return self.buffer[self.row + r, column]

    def _made(self, row: Expr, r: Expr, first: Expr) -> Expr:
        sums = self._sums(row, r, first)
        if self.factor is None:
            return T.Cast(vector("float32", self.lanes), sums) * self._scales(row, r, first)
        return sums * spread(T.int32(self.factor), self.lanes)

    def _sums(self, row: Expr, r: Expr, first: Expr) -> Expr:
        """Sums of `lanes` groups, or of stretches where groups are longer."""
        each = self.p.rows.group // self.of_stretch // self.p.rows.sums
        parts = [self._load(self.x_sum, row, r, first * each + i * self.lanes) for i in range(each)]
        if each == 1:
            return parts[0]
        even = range(0, 2 * self.lanes, 2)
        return _pick(parts, list(even)) + _pick(parts, [i + 1 for i in even])

    def _scales(self, row: Expr, r: Expr, first: Expr) -> Expr:
        each = self.of_stretch
        if each == 1:
            return self._load(self.x_scale, row, r, first)
        lanes = self.lanes // each
        found = self._load(self.x_scale, row, r, first // each, lanes)
        return _pick([found] * each, [i // each for i in range(self.lanes)])

    def _load(self, buffer: Any, row: Expr, r: Expr, first: Expr, lanes: int = 0) -> Expr:
        dtype = "float32" if buffer is self.x_scale else "int32"
        place = self.at_row(buffer, row, r, first)
        return B.bind(buffer.vload(list(place), vector(dtype, lanes or self.lanes)))


def _pick(parts: list[Expr], lanes: list[int]) -> Expr:
    """Lanes of some vectors, or of scalars."""
    if len(lanes) == 1:
        return parts[lanes[0]]
    return B.bind(T.Shuffle(parts, lanes))
