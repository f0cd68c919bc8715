"""The frame every linear kernel shares: threads, blocks of rows, register tiles, and the stores.

A kernel is built with TVM's IRBuilder: Python loops unroll, `B.serial` loops stay. It runs

    for each block of rows and each tile of columns, in parallel:   rows fit L2, columns fit L1
        for each tile of `r` rows of the block, and each strip of the tile of columns:
            r x 2 vectors in registers, all of K; of one row up to 4

Rows that do not fill the last register tile are computed twice, with the tile moved up: the same
numbers again, and no code for every remainder. Knows nothing of how weights are stored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mlcc_compiler._tvm import B, T
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking

Expr = Any
"""A TVM expression, buffer or function; TVM ships no types for them."""

_L2_BYTES = 384 * 1024
"""What a block of activation rows may take of a core's second-level cache."""

_AHEAD_BYTES = 12 * 1024
"""How far ahead of its reads a tile asks for weights. Hardware alone fetches half as fast as memory
delivers when a few rows keep the loop busy."""

MANY = 24
"""Rows that a tile of a weight is unpacked for."""

_MANY_BYTES = 1024 * 1024
"""`_L2_BYTES` where each block unpacks a tile: what is read most often is that."""

_SERIAL = 16384
"""Elements of rows that one thread rounds faster than it wakes another."""

_LINE = 64
"""Bytes of a cache line."""

OPAQUE = 8
"""relax's op_pattern that keeps fusion away."""


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
    """Some of a tile's columns, which are computed at a time: `vectors` registers of them."""

    number: Expr
    of: int
    """Strips in a tile."""
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def column(self, vector: int) -> Expr:
        """Where in the tile a vector begins."""
        return self.number * self.columns + vector * self.lanes


def for_each_strip(packing: CpuPacking, rows: int, body: Callable[[Strip], None]) -> None:
    """Emit the body over a tile's strips, of the width that so many rows take."""
    vectors, lanes = packing.vectors_at_once(rows), packing.isa.lanes
    count = packing.width // (vectors * lanes)
    if count == 1:
        body(Strip(0, 1, vectors, lanes))
        return
    with B.serial(count) as number:
        body(Strip(number, count, vectors, lanes))


def rows_ahead(weights: Expr) -> int:
    """How many rows of `weights` [tiles, rows, width] lie within the prefetch distance."""
    return max(_AHEAD_BYTES // _row_bytes(weights), 1)


def prefetch(weights: Expr, tile: Expr, index: Expr, ahead: int, strip: Strip) -> None:
    """Ask for a strip of `weights[tile, index + ahead]`; past a tile's end that is the next tile.

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
    """Where a tile's results go: y f32[n, *], and the bias f32[*] to add, if any, of which the
    weight's columns are those from `first` on.

    `at` and `tile_of` are for those whose rows and tiles lie otherwise.
    """

    packing: CpuPacking
    y: Expr
    bias: Expr | None
    first: int = field(default=0, kw_only=True)

    def at(self, row: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Where in y a result lies."""
        return row, column

    def tile_of(self, tile: Expr) -> Expr:
        """The tile of columns that a tile of the weight makes."""
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

    def ask(self, rows: int, row: Expr, tile: Expr, strip: Strip) -> None:
        """Ask for the lines of a register tile before they are written: rows of y are far from one
        another, and each write would wait for memory."""
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


TileBody = Callable[[int, Expr, Expr], None]
"""(rows, row, tile): emits one register tile."""


@dataclass(frozen=True)
class TiledWeight:
    """A weight's tiles, and how their register tiles are emitted."""

    tiles: int
    body: TileBody
    unpacked: Callable[[Expr], TileBody] | None = None
    """Emits what makes a tile ready for `MANY` rows and more, and gives the body for them."""


def for_each_tile(
    weights: Sequence[TiledWeight], n: Expr, row_bytes: int, sizes: tuple[int, ...]
) -> None:
    """Emit the loops over the tiles of all weights.

    `n` is the symbolic number of rows, `row_bytes` what one row of activations takes, `sizes` the
    heights of the register tiles, largest first and 1 last.
    """
    largest = sizes[0]

    def few(weight: TiledWeight, begin: Expr, end: Expr, tile: Expr) -> None:
        cover_rows(sizes, n, begin, end, lambda rows, row: weight.body(rows, row, tile))

    def many(weight: TiledWeight, begin: Expr, end: Expr, tile: Expr) -> None:
        assert weight.unpacked is not None
        body = weight.unpacked(tile)
        cover_rows(sizes[:1], n, begin, end, lambda rows, row: body(rows, row, tile))

    def block(size: int, least: int) -> int:
        return max(size // row_bytes // largest, -(-least // largest)) * largest

    few_rows = partial(_tasks, weights, n, block(_L2_BYTES, 2 * largest), largest, few)
    if any(weight.unpacked is None for weight in weights):
        few_rows()
        return
    with B.If(n < MANY):
        with B.Then():
            few_rows()
        with B.Else():
            _tasks(weights, n, block(_MANY_BYTES, 4 * MANY), largest, many)


def _tasks(
    weights: Sequence[TiledWeight],
    n: Expr,
    most: int,
    largest: int,
    emit: Callable[[TiledWeight, Expr, Expr, Expr], None],
) -> None:
    """A task is a block of at most `most` rows times a tile of one of the weights."""
    tiles = sum(weight.tiles for weight in weights)
    blocks = B.bind((n + (most - 1)) // most)
    with B.parallel(blocks * tiles) as index:
        # Rows per block: equal shares in whole register tiles. Of no rows there is no block, and
        # the division, which may be moved out of the loop, still has to be one.
        each = B.bind(T.max(blocks, 1) * largest)
        share = B.bind((n + (each - 1)) // each * largest)
        begin = B.bind(index // tiles * share)
        end = B.bind(T.min(begin + share, n))
        tile = B.bind(index % tiles)

        def cover(weight: int, first: int) -> None:
            own = B.bind(tile - first) if first else tile
            if weight + 1 == len(weights):
                emit(weights[weight], begin, end, own)
                return
            with B.If(tile < first + weights[weight].tiles):
                with B.Then():
                    emit(weights[weight], begin, end, own)
                with B.Else():
                    cover(weight + 1, first + weights[weight].tiles)

        cover(0, 0)


def cover_rows(
    sizes: tuple[int, ...], n: Expr, begin: Expr, end: Expr, body: Callable[[int, Expr], None]
) -> None:
    """Cover rows begin..end by tiles of the largest size that n, the number of all, allows."""
    rows, *smaller = sizes

    def cover() -> None:
        with B.serial((end - begin + (rows - 1)) // rows) as i:
            body(rows, B.bind(T.min(begin + i * rows, n - rows)))

    if not smaller:
        cover()
        return
    # 8 rows are two tiles of 4 rather than two of 6.
    least = rows if rows % smaller[0] == 0 else 2 * smaller[0] + 1
    with B.If(n >= least):
        with B.Then():
            cover()
        with B.Else():
            cover_rows(tuple(smaller), n, begin, end, body)
