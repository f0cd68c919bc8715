"""A tile of many rows whose two products are AMX's: 32 rows by 32 keys, or by 32 dimensions, at a
time.

A square of scores, 32 rows by 32 keys, becomes weights while it is in the first cache; the weights
of a block of keys are multiplied by its values together. Scores, the softmax and sums are float32.

**Weights are relative to a power of two near a row's largest score, not to that score.** bf16 has
the range of float32, so a weight may be far above one. A row's power of two rises when a square has
a score `_RISE` above it, which sums are scaled for, and that is seldom after its first square. So
most squares need no maximum of a row, and most blocks no factor for older sums. When it rises
depends on the row's own scores alone.

The last rows of a tile share 32 with rows of zeros, which are never read. Weights of keys that a
row does not see are zero, so values past the block's end are zeroed: a value that is not finite
reaches all rows of a square that has its key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.attention.bf16_tile import LANES, STEP, Bf16Tile, Rows
from mlcc_compiler.kernels.cpu.attention.blocking import (
    KEYS,
    LINE,
    NO_SCORE,
    TILE_ROWS,
    VALUES,
    Scratch,
    Tile,
)
from mlcc_compiler.kernels.cpu.isa import amx
from mlcc_compiler.kernels.cpu.isa.avx512 import AVX512_IR, any_above, exp2
from mlcc_compiler.kernels.cpu.isa.bf16_pairs import halves, pair
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    max_lanes,
    maximum,
    prefetch,
    span,
    spread,
    sum_lanes,
)
from mlcc_compiler.kernels.frame import Expr, store

_HALF = amx.SIDE // 2
_TILE_BYTES = 64  # between rows of a contiguous tile
_RISE = 32.0  # of a score above the row's power of two, in powers of two
_TOGETHER = 4  # rows whose instructions are emitted side by side


class AmxTile(Bf16Tile):
    """Emits `TileKernel.run` for many rows, by AMX."""

    def run(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        """Fill scratch.sums, .top and .total."""
        with amx.tiles():
            super().run(tile, q, scratch)
        with T.serial(tile.rows) as r:
            store(scratch.total, sum_lanes(scratch.tiles.totals[r, span(0, LANES)]), r)

    def instructions(self) -> AbstractContextManager[None]:
        return amx.imported(AVX512_IR)

    def for_rows(self, tile: Tile, attend: Callable[[Expr, Expr], None]) -> None:
        with T.serial(T.floordiv(tile.rows + (TILE_ROWS - 1), TILE_ROWS)) as i:
            row = bind(i * TILE_ROWS)
            attend(row, bind(T.min(tile.rows - row, TILE_ROWS)))

    def _begin(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        """Zero sums and totals of all rows, and the queries of the rows of zeros; ask for the
        queries, which `_load_block` needs after the first keys."""
        tiles, none = scratch.tiles, spread(0.0, LANES)
        with T.serial(self._whole(tile)) as r:
            for values in (tiles.totals, scratch.sums):
                with T.serial(int(values.shape[1]) // LANES) as d:
                    store(values, none, r, span(d * LANES, LANES))
            store(scratch.top, T.float32(NO_SCORE), r)
        with T.serial(tile.rows) as r:
            token, head = self.cut.row(tile, r)
            for d in range(0, self.cut.shape.head_dim, LINE // 4):
                T.evaluate(prefetch(T.address_of(q[token, head, d]), 2))
        with T.serial(self._whole(tile) - tile.rows) as i:
            r = bind(tile.rows + i)
            with T.serial(self.cut.shape.head_dim // STEP) as j:
                zeros = spread(T.int32(0), LANES)
                store(tiles.queries, zeros, T.floordiv(r, _HALF), j, self._at(r))

    def _whole(self, tile: Tile) -> Expr:
        """The rows of whole squares."""
        return T.floordiv(tile.rows + (TILE_ROWS - 1), TILE_ROWS) * TILE_ROWS

    def _load_block(self, tile: Tile, q: Expr, begin: Expr, size: Expr, scratch: Scratch) -> None:
        super()._load_block(tile, q, begin, size, scratch)
        with T.If(begin == tile.begin), T.Then():
            self._load_queries(tile, q, scratch)

    def _load_queries(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        """Scale and round the queries."""
        scale = spread(self.scale, LANES)
        with T.serial(tile.rows) as r:
            token, head = self.cut.row(tile, r)
            with T.serial(self.cut.shape.head_dim // STEP) as j:
                both = [span(j * STEP + part * LANES, LANES) for part in range(2)]
                words = halves(*(q[token, head, at] * scale for at in both))
                store(scratch.tiles.queries, words, T.floordiv(r, _HALF), j, self._at(r))

    def _at(self, r: Expr) -> Expr:
        """The words of a row in its tile."""
        return span(T.floormod(r, _HALF) * LANES, LANES)

    def _load_keys(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Load a block of keys, in tiles; values past its end are undefined."""
        dim = self.cut.shape.head_dim
        with T.serial(T.floordiv(size + (LANES - 1), LANES)) as g:
            page, offset = self.cache.place(tile, bind(begin + g * LANES))
            with T.grid(dim // STEP, _HALF) as (d, i):
                two = [
                    self.cache.load_column(page, tile.head, d * STEP + 2 * i + k, offset, LANES)
                    for k in range(2)
                ]
                store(scratch.tiles.keys, pair(*two), g, d, span(i * LANES, LANES))

    def _load_values(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Load a block of values, in tiles; zero those in no page, the second of a pair that the
        block's end cuts, as memory there may hold NaN, and up to the end of its last step."""
        page_size, vectors = self.cut.layout.page_size, self.cut.shape.head_dim // LANES
        with T.serial(T.floordiv(size + (page_size - 1), page_size)) as i:
            start = bind(i * page_size)
            page, _ = self.cache.place(tile, begin + start)
            pairs = bind(T.floordiv(T.min(size - start, page_size) + 1, 2))
            with T.grid(pairs, vectors) as (j, d):
                two = [
                    self.cache.load_value(page, tile.head, 2 * j + k, d * LANES, LANES)
                    for k in range(2)
                ]
                self._put_values(scratch, T.floordiv(start, 2) + j, d, pair(*two))
        first, last = bind(T.floordiv(size + 1, 2)), bind(T.floordiv(size, 2))
        with T.If(last < first), T.Then(), T.serial(vectors) as d:
            at = self._value_at(last, d)
            kept = T.bitwise_and(scratch.tiles.values[at], spread(T.int32(0xFFFF), LANES))
            self._put_values(scratch, last, d, kept)
        none = spread(T.int32(0), LANES)
        if self.cut.aligns_keys:
            unseen = bind(T.floordiv(T.max(tile.first_key - begin, 0), 2))
            with T.grid(unseen, vectors) as (j, d):
                self._put_values(scratch, j, d, none)
        end = T.floordiv(size + (STEP - 1), STEP) * _HALF
        with T.grid(end - first, vectors) as (j, d):
            self._put_values(scratch, first + j, d, none)

    def _value_at(self, j: Expr, d: Expr) -> tuple[Expr, Expr, Expr]:
        """Where a pair of values has its vector d of dimensions."""
        return T.floordiv(j, _HALF), d, self._at(j)

    def _put_values(self, scratch: Scratch, j: Expr, d: Expr, value: Expr) -> None:
        store(scratch.tiles.values, value, *self._value_at(j, d))

    def _attend(self, rows: Rows, scratch: Scratch) -> None:
        pending = Registers(1, 1, "int64")  # the first step whose weights wait for their values
        pending[0] = T.int64(0)
        with T.If(rows.steps > 0), T.Then():
            self._score_step(rows, T.int64(0), scratch)
        with T.serial(rows.steps) as step:
            with T.If(step + 1 < rows.steps), T.Then():
                self._score_step(rows, bind(step + 1), scratch)
            self._adjust(rows, step, scratch)
            with T.If(self._rises(rows, step, scratch)), T.Then():
                self._add_steps(rows, pending[0], step, scratch)
                self._raise_tops(rows, step, scratch)
                pending[0] = step
            self._weigh(rows, step, scratch)
        self._add_steps(rows, pending[0], rows.steps, scratch)

    def _score_step(self, rows: Rows, step: Expr, scratch: Scratch) -> None:
        """scratch.tiles.scores = 32 rows by the keys of a step."""
        tiles = scratch.tiles
        upper = bind(T.floordiv(rows.first, _HALF))
        amx.zero()
        with T.serial(self.cut.shape.head_dim // amx.DEPTH) as d:
            queries = [T.address_of(tiles.queries[upper + h, d, 0]) for h in range(2)]
            keys = [T.address_of(tiles.keys[2 * step + side, d, 0]) for side in range(2)]
            amx.add(queries, _TILE_BYTES, keys, _TILE_BYTES)
        amx.store(T.address_of(tiles.scores[T.floormod(step, 2), 0, 0]), 4 * amx.SIDE)

    def _some(self, rows: Rows) -> Expr:
        """The rows, and rows of zeros up to a multiple of those that are side by side."""
        return T.floordiv(rows.count + (_TOGETHER - 1), _TOGETHER) * _TOGETHER

    def _each_row(self, rows: Rows, body: Callable[[Expr, int], None]) -> None:
        """Emit body(row, i) for `_some` rows; i counts those side by side."""
        with T.serial(T.floordiv(self._some(rows), _TOGETHER)) as j:
            for i in range(_TOGETHER):
                body(bind(j * _TOGETHER + i), i)

    def _adjust(self, rows: Rows, step: Expr, scratch: Scratch) -> None:
        """Scale and cap the scores, and mask them unless each row sees all keys of the step."""
        scores, square = scratch.tiles.scores, T.floormod(step, 2)
        changed = self.cut.layout.is_int8 or self.cut.shape.softcap is not None

        def adjust(masked: bool) -> None:
            with T.grid(rows.count, 2) as (r, part):
                at, v = span(part * LANES, LANES), 2 * step + part
                score = scores[square, r, at]
                if self.cut.layout.is_int8:
                    score = score * scratch.scales[KEYS, span(v * LANES, LANES)]
                score = bind(self._apply_softcap(score))
                store(scores, self._visible(score, rows, r, v, masked), square, r, at)

        if self.cut.shape.visible_from:
            adjust(True)
            return
        with T.If(self._sees_step(rows, step)):
            with T.Then():
                if changed:
                    adjust(False)
                else:
                    T.evaluate(0)
            with T.Else():
                adjust(True)

    def _sees_step(self, rows: Rows, step: Expr) -> Expr:
        """Whether each of the rows attends to all keys of a step."""
        shape, begin = self.cut.shape, bind(step * STEP)
        end = bind(begin + STEP)
        first = self._position(rows.tile, rows.first) - rows.begin
        seen = rows.size >= end
        if shape.causal:
            seen = T.And(seen, first + 1 >= end)
        if shape.window is None:
            return seen
        last = self._position(rows.tile, rows.first + (rows.count - 1)) - rows.begin
        seen = T.And(seen, last - begin < shape.window)
        return seen if shape.causal else T.And(seen, first + shape.window >= end)

    def _rises(self, rows: Rows, step: Expr, scratch: Scratch) -> Expr:
        """Whether a score of any row is too far above its power of two. NaN is not."""
        scores, square = scratch.tiles.scores, T.floormod(step, 2)
        most = Registers(_TOGETHER, LANES)
        for i in range(_TOGETHER):
            most[i] = spread(NO_SCORE, LANES)

        def row(r: Expr, i: int) -> None:
            left, right = (scores[square, r, span(part * LANES, LANES)] for part in range(2))
            top = spread(scratch.top[rows.first + r], LANES)
            most[i] = maximum(maximum(left, right) - top, most[i])

        self._each_row(rows, row)
        both = [maximum(most[i], most[i + 1]) for i in range(0, _TOGETHER, 2)]
        return bind(any_above(maximum(*both), _RISE)) != 0

    def _raise_tops(self, rows: Rows, step: Expr, scratch: Scratch) -> None:
        """Raise the power of two of the rows that need it; scale their sums and totals."""
        tiles, square = scratch.tiles, T.floormod(step, 2)
        with T.serial(self._some(rows)) as r:
            left, right = (tiles.scores[square, r, span(p * LANES, LANES)] for p in range(2))
            best = bind(maximum(left, maximum(right, spread(NO_SCORE, LANES))))
            store(tiles.shrink, max_lanes(best), r)
        with T.serial(T.floordiv(rows.count + (LANES - 1), LANES)) as i:
            at, row = span(i * LANES, LANES), span(rows.first + i * LANES, LANES)
            best, old = bind(tiles.shrink[at]), bind(scratch.top[row])
            new = bind(T.Select(best > old + spread(_RISE, LANES), T.floor(best), old))
            store(scratch.top, new, row)
            store(tiles.shrink, exp2(old - new), at)
        first = T.And(step == 0, rows.begin == rows.tile.begin)
        with T.If(T.Not(first)), T.Then(), T.serial(rows.count) as r:
            row, factor = bind(rows.first + r), spread(tiles.shrink[r], LANES)
            for values in (tiles.totals, scratch.sums):
                with T.serial(int(values.shape[1]) // LANES) as d:
                    at = span(d * LANES, LANES)
                    store(values, values[row, at] * factor, row, at)

    def _weigh(self, rows: Rows, step: Expr, scratch: Scratch) -> None:
        """Turn scores into weights 2 ** (score - top), in pairs; update totals.

        Scales of values of 8-bit pages are applied here, but not to the total.
        """
        tiles, square = scratch.tiles, T.floormod(step, 2)

        def weight(r: Expr, part: int) -> Expr:
            top = spread(scratch.top[rows.first + r], LANES)
            return bind(exp2(tiles.scores[square, r, span(part * LANES, LANES)] - top))

        def scaled(x: Expr, part: int) -> Expr:
            if not self.cut.layout.is_int8:
                return x
            scale = scratch.scales[VALUES, span((2 * step + part) * LANES, LANES)]
            none = spread(0.0, LANES)  # past the block's end scales may be no numbers
            return T.Select(x == none, none, x * scale)

        def row(r: Expr, i: int) -> None:
            left, right = weight(r, 0), weight(r, 1)
            at = (rows.first + r, span(0, LANES))
            store(tiles.totals, tiles.totals[at] + (left + right), *at)
            words = halves(bind(scaled(left, 0)), bind(scaled(right, 1)))
            store(tiles.weights, words, step, T.floordiv(r, _HALF), self._at(r))

        self._each_row(rows, row)

    def _add_steps(self, rows: Rows, first: Expr, end: Expr, scratch: Scratch) -> None:
        """scratch.sums += weights x values of some steps."""
        tiles, dim = scratch.tiles, self.cut.shape.head_dim
        with T.If(first < end), T.Then(), T.serial(dim // amx.SIDE) as part:
            sums = T.address_of(scratch.sums[rows.first, part * amx.SIDE])
            amx.load(sums, 4 * dim)
            with T.serial(end - first) as i:
                step = bind(first + i)
                weights = [T.address_of(tiles.weights[step, h, 0]) for h in range(2)]
                values = [T.address_of(tiles.values[step, 2 * part + side, 0]) for side in range(2)]
                amx.add(weights, _TILE_BYTES, values, _TILE_BYTES)
            amx.store(sums, 4 * dim)
