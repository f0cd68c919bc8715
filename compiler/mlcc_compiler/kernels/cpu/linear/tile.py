"""Frame of every linear kernel: register tiles, strips of columns, and stores.

A kernel is built with TVM's IRBuilder: Python loops unroll, `B.serial` loops stay. The threads'
loops are in `tasks.py`. Knows nothing of how weights are stored.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking

Expr = Any
"""A TVM expression, buffer or function; TVM ships no types for them."""

_AHEAD_BYTES = 12 * 1024
"""Prefetch distance for weights. The hardware prefetcher alone reaches half of memory bandwidth
when a few rows keep the loop busy.
"""

_SERIAL = 16384
"""Elements of rows that one thread rounds faster than it wakes another."""

_LINE = 64
"""Bytes of a cache line."""

OPAQUE = 8
"""relax's op_pattern that prevents fusion."""


class Registers:
    """`count` vector registers: LLVM keeps the array in registers as every index is constant."""

    def __init__(self, count: int, lanes: int, dtype: str) -> None:
        self.lanes, self.kind = lanes, f"{dtype}x{lanes}"
        self.buffer = B.alloc_buffer((count * lanes,), dtype)

    def get(self, i: int) -> Expr:
        return self.buffer.vload([i * self.lanes], self.kind)

    def set(self, i: int, value: Expr) -> None:
        B.buffer_store(self.buffer, value, [T.Ramp(i * self.lanes, 1, self.lanes)])


@dataclass(frozen=True)
class Strip:
    """Some of a tile's columns, computed at a time: `vectors` registers of them."""

    number: Expr
    of: int
    """Strips in a tile."""
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def column(self, vector: int) -> Expr:
        """First column of a vector within the tile."""
        return self.number * self.columns + vector * self.lanes


def for_each_strip(packing: CpuPacking, rows: int, body: Callable[[Strip], None]) -> None:
    """Emit the body over a tile's strips, whose width depends on the number of rows."""
    vectors, lanes = packing.vectors_at_once(rows), packing.isa.lanes
    count = packing.width // (vectors * lanes)
    if count == 1:
        body(Strip(0, 1, vectors, lanes))
        return
    with B.serial(count) as number:
        body(Strip(number, count, vectors, lanes))


def rows_ahead(weights: Expr) -> int:
    """Rows of `weights` [tiles, rows, width] within the prefetch distance."""
    return max(_AHEAD_BYTES // _row_bytes(weights), 1)


def prefetch(weights: Expr, tile: Expr, index: Expr, ahead: int, strip: Strip) -> None:
    """Prefetch a strip of `weights[tile, index + ahead]`; past a tile's end that is the next tile.

    Past the end of the tensor it does nothing.
    """
    width = int(weights.shape[2])
    for start in range(0, _row_bytes(weights) // strip.of, _LINE):
        element = strip.number * (width // strip.of) + start * width // _row_bytes(weights)
        address = T.address_of(weights[tile, index + ahead, element])
        hint = T.llvm_lookup_intrinsic_id("llvm.prefetch")
        read, keep, data = T.int32(0), T.int32(3), T.int32(1)
        B.evaluate(T.call_llvm_intrin("void", hint, address, read, keep, data))


def _row_bytes(weights: Expr) -> int:
    """Bytes of the last dimension."""
    return int(weights.shape[2]) * np.dtype(str(weights.dtype)).itemsize


@dataclass(frozen=True)
class Output:
    """Destination of a tile's results: y f32[n, *], and the bias f32[*] to add, if any; the
    weight's columns start at `first`.

    Subclasses override `at` and `tile_of` for other arrangements.
    """

    packing: CpuPacking
    y: Expr
    bias: Expr | None
    first: int = field(default=0, kw_only=True)

    def at(self, row: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Location in y of a result."""
        return row, column

    def tile_of(self, tile: Expr) -> Expr:
        """The tile of columns computed by a tile of the weight."""
        return tile

    def store(self, sums: Registers, rows: int, row: Expr, tile: Expr, strip: Strip) -> None:
        """Write a register tile [rows, columns of the strip], only the columns that exist."""
        p = self.packing
        tile = self.tile_of(tile)
        if p.n % p.width == 0:
            self._store_whole(sums, rows, row, tile, strip)
            return
        with B.If(tile < p.n // p.width):
            with B.Then():
                self._store_whole(sums, rows, row, tile, strip)
            with B.Else():
                self._store_part(sums, rows, row, strip)

    def prefetch_rows(self, rows: int, row: Expr, tile: Expr, strip: Strip) -> None:
        """Prefetch the lines of a register tile before they are written: rows of y are far apart,
        and each write would wait for memory."""
        hint = T.llvm_lookup_intrinsic_id("llvm.prefetch")
        write, keep, data = T.int32(1), T.int32(3), T.int32(1)
        each = _LINE // np.dtype(str(self.y.dtype)).itemsize
        first = self.tile_of(tile) * self.packing.width + (self.first + strip.column(0))
        for r in range(rows):
            for column in range(0, strip.columns, each):
                address = T.address_of(self.y[self.at(row + r, first + column)])
                B.evaluate(T.call_llvm_intrin("void", hint, address, write, keep, data))

    def _store_whole(self, sums: Registers, rows: int, row: Expr, tile: Expr, strip: Strip) -> None:
        lanes = sums.lanes
        for c in range(strip.vectors):
            column = tile * self.packing.width + (self.first + strip.column(c))
            bias = B.bind(self.bias.vload([column], sums.kind)) if self.bias is not None else None
            with B.unroll(rows) as r:
                value = sums.get(r * strip.vectors + c)
                value = value if bias is None else value + bias
                y_row, y_column = self.at(row + r, column)
                B.buffer_store(self.y, value, [y_row, T.Ramp(y_column, 1, lanes)])

    def _store_part(self, sums: Registers, rows: int, row: Expr, strip: Strip) -> None:
        """The last tile, one element at a time, through memory."""
        p = self.packing
        first = p.n // p.width * p.width + strip.column(0)
        left = p.n - first
        if strip.of > 1:
            left = B.bind(T.max(T.min(left, T.int64(strip.columns)), T.int64(0)))
        spill = B.alloc_buffer((strip.columns,), "float32")
        with B.unroll(rows) as r:
            for c in range(strip.vectors):
                value = sums.get(r * strip.vectors + c)
                B.buffer_store(spill, value, [T.Ramp(c * sums.lanes, 1, sums.lanes)])
            with B.serial(left) as j:
                column = self.first + first + j
                value = spill[j] if self.bias is None else spill[j] + self.bias[column]
                B.buffer_store(self.y, value, list(self.at(row + r, column)))


def for_rows(n: Expr, elements: int, row: Callable[[Expr], None]) -> None:
    """Emit row(i) for n rows of `elements` each, in parallel if there is enough to do."""
    with B.If(n * elements <= _SERIAL):
        with B.Then(), B.serial(n) as i:
            row(i)
        with B.Else(), B.parallel(n) as i:
            row(i)
