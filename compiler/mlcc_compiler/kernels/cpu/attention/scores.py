"""Scores of a tile: queries times one block of keys, in one of two ways.

For few rows (decode) each key is read once from its page. For many rows (prefill) the block is
converted into scratch with keys as lanes, and a register tile multiplies. This file is for keys
stored one after another, as values are (latents); `columns.py` is for pages of keys.
"""

from collections.abc import Callable
from functools import partial

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.attention.blocking import (
    KEYS,
    VALUES,
    Blocking,
    Cache,
    Scratch,
    Tile,
)
from mlcc_compiler.kernels.cpu.isa.register_tile import (
    Step,
    lane_sums,
    product,
    row_tiles,
    tile_shape,
    transpose,
)
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind, span, spread
from mlcc_compiler.kernels.frame import Expr, store

_UNROLL = 8  # vectors of a key that are unrolled
_AHEAD = 2  # groups of keys between a prefetch and its use

Load = Callable[[int, Expr], Expr]


class Scores:
    """Emits scratch.scores[row, j] = query of the row . key begin + j; undefined past `size`."""

    def __init__(self, cut: Blocking, cache: Cache) -> None:
        self.cut, self.cache = cut, cache

    def start(self, tile: Tile, scratch: Scratch) -> None:
        """Runs before the first block of few rows; nothing here, as each block is touched."""

    def many(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """For tiles of any rows; a block is at most `cut.block` keys."""
        self.load_keys(tile, begin, size, scratch)
        self._multiply(tile, size, scratch)

    def few(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """For tiles of at most `FEW` rows: each product is summed over its lanes, by a tree over
        neighbouring keys."""
        cut = self.cut
        if cut.layout.dtype != "float32":
            self.cache.touch(tile, begin, size, scratch)
        side = cut.side
        with T.serial(T.floordiv(size + side - 1, side)) as g:
            key = bind(begin + g * side)
            page, offset = self._visit(tile, key)
            keys = partial(self.cache.load, KEYS, page, tile.head)
            self._score_group(tile, g * side, lambda i, at: keys(offset + i, at), scratch)

    def _visit(self, tile: Tile, key: Expr) -> tuple[Expr, Expr]:
        """The location of a group of keys; prefetches later keys and this group's values."""
        if self.cut.layout.dtype == "float32":
            self.cache.prefetch(tile, KEYS, bind(key + _AHEAD * self.cut.side))
            self.cache.prefetch(tile, VALUES, key)
        return self.cache.place(tile, key)

    def _score_group(self, tile: Tile, column: Expr, keys: Load, scratch: Scratch) -> None:
        """Scores of `side` neighbouring keys; keys(i, at) loads some dimensions of key i."""
        side, group = self.cut.side, self.cut.shape.group

        def body(row: Expr, rows: int) -> None:
            sums = lane_sums(side, lambda i: self._products(i, keys, row, rows, scratch))
            for r, value in enumerate(sums):
                store(scratch.scores, value, row + r, span(column, side))

        row_tiles(tile.rows, self._rows_at_once(), group, body)

    def _rows_at_once(self) -> int:
        """Queries that share a load of a key; with 16 registers (AVX2) reloading is faster."""
        if self.cut.lanes == 8:
            return 1
        return 4 if self.cut.shape.group == 3 else 2

    def _products(self, i: int, keys: Load, row: Expr, rows: int, scratch: Scratch) -> list[Expr]:
        """For each row: key i times the query, not yet summed over the lanes."""
        lanes = self.cut.dim_lanes
        sums = Registers(rows, lanes)
        for r in range(rows):
            sums[r] = spread(0.0, lanes)

        def add(at: Expr) -> None:
            part = bind(keys(i, at))
            for r in range(rows):
                sums[r] = sums[r] + part * scratch.queries[row + r, at]

        steps = self.cut.shape.head_dim // lanes
        if steps <= _UNROLL:
            for j in range(steps):
                add(span(j * lanes, lanes))
        else:
            with T.serial(steps) as j:
                add(span(j * lanes, lanes))
        return [sums[r] for r in range(rows)]

    def load_keys(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """scratch.keys[d, j] = key begin + j, transposed. Lanes past the block's end are
        undefined."""
        cut = self.cut
        side = cut.side
        with T.serial(T.floordiv(size + side - 1, side)) as g:
            key = bind(begin + g * side)
            page, offset = self._visit(tile, key)
            with T.serial(cut.shape.head_dim // side) as j:
                at = span(j * side, side)
                rows = [self.cache.load(KEYS, page, tile.head, offset + i, at) for i in range(side)]
                for i, column in enumerate(transpose(rows)):
                    store(scratch.keys, column, j * side + i, span(g * side, side))

    def _multiply(self, tile: Tile, size: Expr, scratch: Scratch) -> None:
        """scratch.scores = queries x scratch.keys."""
        cut = self.cut
        lanes = cut.key_lanes
        fit = tile_shape(lanes, cut.lanes)
        step = lanes * fit.vectors
        runs = -(-cut.block // step)

        def part(column: Expr, vectors: int) -> None:
            def body(row: Expr, rows: int) -> None:
                self._dot(row, rows, column, vectors, scratch)

            row_tiles(tile.rows, fit.rows, cut.shape.group, body)

        with T.serial(T.min(T.floordiv(size + step - 1, step), cut.block // step)) as i:
            part(i * step, fit.vectors)
        rest = cut.block % step // lanes
        if rest:
            with T.If(size > (runs - 1) * step), T.Then():
                part((runs - 1) * step, rest)

    def _dot(self, row: Expr, rows: int, column: Expr, vectors: int, scratch: Scratch) -> None:
        """A register tile of scores."""
        lanes = self.cut.key_lanes

        def walk(step: Step) -> None:
            with T.serial(self.cut.shape.head_dim) as d:
                step(
                    lambda r: scratch.queries[row + r, d],
                    lambda v: scratch.keys[d, span(column + v * lanes, lanes)],
                )

        product(
            rows,
            vectors,
            lanes,
            walk,
            lambda r, v: spread(0.0, lanes),
            lambda r, v, total: store(
                scratch.scores, total, row + r, span(column + v * lanes, lanes)
            ),
        )
