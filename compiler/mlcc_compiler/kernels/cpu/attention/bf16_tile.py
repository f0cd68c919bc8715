"""A tile of many rows whose two products are bf16, by VDPBF16PS: twice the multiply-adds of
float32.

For CPUs with that instruction, in models whose rows are rounded for their weights anyway. Queries,
keys, values and a block's weights are bf16 here; scores, the softmax and all sums are float32.
Operands lie in pairs, in lanes of 32 bits: keys as [pairs of dimensions, keys], values as [pairs of
keys, dimensions]. A block of keys is converted to scratch once for all rows; then a few rows at a
time pass through scores, softmax and sums, so that intermediates stay in the first-level cache, and
keys ahead of all these rows are skipped.

Weights are powers of 2: scores are multiplied by log2(e). Few rows and other CPUs: `tile.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import e as euler
from math import log, log2

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.attention.blocking import (
    KEY_STEP,
    KEYS,
    NO_SCORE,
    PAIR_ROWS,
    VALUES,
    Blocking,
    Cache,
    Scratch,
    Tile,
)
from mlcc_compiler.kernels.cpu.isa.bf16_pairs import DOT2_IR, PAIR_IR, dot2, halves, imported, pair
from mlcc_compiler.kernels.cpu.isa.register_tile import Step, product, row_tiles, split
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    exp2_falling,
    max_lanes,
    maximum,
    span,
    spread,
    sum_lanes,
    tanh,
)
from mlcc_compiler.kernels.frame import Expr, store

LANES = 16
STEP = KEY_STEP  # keys whose weights are one vector
_VECTORS = 4  # of keys, or of dimensions, that PAIR_ROWS rows meet in registers
_LOG2E = log2(euler)


@dataclass(frozen=True)
class Rows:
    """Some rows of a tile, and a block of keys."""

    tile: Tile
    first: Expr
    count: Expr
    """A number, or a run-time one."""
    begin: Expr
    """First key of the block."""
    size: Expr
    """Keys in the block."""
    seen: Expr
    """Keys visible to any of the rows."""

    @property
    def steps(self) -> Expr:
        return T.floordiv(self.seen + (STEP - 1), STEP)


class Bf16Tile:
    """Emits `TileKernel.run` for many rows."""

    def __init__(self, cut: Blocking, cache: Cache) -> None:
        self.cut, self.cache = cut, cache

    def run(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        """Fill scratch.sums, .top and .total."""
        cut = self.cut
        with self.instructions():
            self._begin(tile, q, scratch)
        with cut.blocks(tile, cut.block) as (begin, size):
            self._load_block(tile, q, begin, size, scratch)

            def attend(row: Expr, rows: Expr) -> None:
                seen = bind(self._visible_keys(tile, begin, size, row, rows))
                self._attend(Rows(tile, row, rows, begin, size, seen), scratch)

            self.for_rows(tile, attend)
        with T.serial(tile.rows) as r:
            store(scratch.top, scratch.top[r] * T.float32(log(2)), r)

    def _load_block(self, tile: Tile, q: Expr, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Load a block of keys and values, and their scales."""
        self._load_keys(tile, begin, size, scratch)
        self._load_values(tile, begin, size, scratch)
        if self.cut.layout.is_int8:
            self.cache.load_scales(tile, begin, size, scratch)

    @property
    def scale(self) -> float:
        """Factor of the queries: a weight is 2 ** score."""
        shape = self.cut.shape
        return shape.scale * (_LOG2E if shape.softcap is None else 1.0)

    def instructions(self) -> AbstractContextManager[None]:
        """Inside, the instructions of this tile may be emitted."""
        return imported(DOT2_IR + PAIR_IR)

    def for_rows(self, tile: Tile, attend: Callable[[Expr, Expr], None]) -> None:
        """Emit attend(first row, rows) over the rows of a tile."""
        row_tiles(tile.rows, PAIR_ROWS, self.cut.shape.group, attend)

    def _begin(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        """Scale and round the queries; zero sums and totals."""
        shape = self.cut.shape
        scale = spread(self.scale, LANES)
        with T.serial(tile.rows) as r:
            token, head = self.cut.row(tile, r)
            with T.serial(shape.head_dim // STEP) as j:
                both = [span(j * STEP + part * LANES, LANES) for part in range(2)]
                x = halves(*(q[token, head, at] * scale for at in both))
                store(scratch.pairs.queries, x, r, span(j * LANES, LANES))
                for at in both:
                    store(scratch.sums, spread(0.0, LANES), r, at)
            store(scratch.top, T.float32(NO_SCORE), r)
            store(scratch.total, T.float32(0), r)

    def _load_keys(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Load a block of keys; values past its end are undefined."""
        with T.serial(T.floordiv(size + (LANES - 1), LANES)) as g:
            page, offset = self.cache.place(tile, bind(begin + g * LANES))
            with T.serial(self.cut.shape.head_dim // 2) as d:
                two = [
                    self.cache.load_column(page, tile.head, 2 * d + i, offset, LANES)
                    for i in range(2)
                ]
                store(scratch.pairs.keys, pair(*two), d, span(g * LANES, LANES))

    def _load_values(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Load a block of values; if its end cuts a pair, the second is zero, as memory there may
        hold NaN."""
        values, page_size = scratch.pairs.values, self.cut.layout.page_size
        vectors = self.cut.shape.head_dim // LANES
        with T.serial(T.floordiv(size + (page_size - 1), page_size)) as i:
            start = bind(i * page_size)
            page, _ = self.cache.place(tile, begin + start)
            pairs = bind(T.floordiv(T.min(size - start, page_size) + 1, 2))
            with T.grid(pairs, vectors) as (j, d):
                two = [
                    self.cache.load_value(page, tile.head, 2 * j + k, d * LANES, LANES)
                    for k in range(2)
                ]
                store(values, pair(*two), T.floordiv(start, 2) + j, span(d * LANES, LANES))
        last = bind(T.floordiv(size, 2))
        with T.If(T.floormod(size, 2) == 1), T.Then(), T.serial(vectors) as d:
            at = span(d * LANES, LANES)
            first = T.bitwise_and(values[last, at], spread(T.int32(0xFFFF), LANES))
            store(values, first, last, at)

    def _visible_keys(self, tile: Tile, begin: Expr, size: Expr, row: Expr, rows: Expr) -> Expr:
        """Number of a block's keys that any of the rows may attend to."""
        if not self.cut.shape.causal or self.cut.shape.visible_until:
            return size
        last = self._position(tile, row + (rows - 1))
        return T.max(T.min(last + 1 - begin, size), 0)

    def _position(self, tile: Tile, row: Expr) -> Expr:
        return tile.position + T.floordiv(row, self.cut.shape.group)

    def _attend(self, rows: Rows, scratch: Scratch) -> None:
        self._score_keys(rows, scratch)
        if self.cut.shape.visible_from:
            self._softmax(rows, scratch, masked=True)
            self._add_values(rows, scratch)
            return
        with T.If(self._all_visible(rows)):
            with T.Then():
                self._softmax(rows, scratch, masked=False)
            with T.Else():
                self._softmax(rows, scratch, masked=True)
        self._add_values(rows, scratch)

    def _score_keys(self, rows: Rows, scratch: Scratch) -> None:
        """Scores of the keys of all steps."""
        wide = _VECTORS // 2
        with T.serial(T.floordiv(rows.steps, wide)) as i:
            self._score(rows, i * wide * STEP, _VECTORS, scratch)
        with T.If(T.floormod(rows.steps, wide) > 0), T.Then():
            self._score(rows, (rows.steps - 1) * STEP, 2, scratch)

    def _add_values(self, rows: Rows, scratch: Scratch) -> None:
        """scratch.sums = sums * shrink + weights x values."""
        column = 0
        for vectors in split(self.cut.shape.head_dim // LANES, _VECTORS):
            self._accumulate(rows, column, vectors, scratch)
            column += vectors * LANES

    def _score(self, rows: Rows, column: Expr, vectors: int, scratch: Scratch) -> None:
        """A register tile of scores, for the keys from `column` on."""
        pairs = scratch.pairs

        def at(v: int) -> Expr:
            return span(column + v * LANES, LANES)

        def walk(step: Step) -> None:
            with T.serial(self.cut.shape.head_dim // 2) as d:
                step(
                    lambda r: pairs.queries[rows.first + r, d],
                    lambda v: pairs.keys[d, at(v)],
                )

        product(
            rows.count,
            vectors,
            LANES,
            walk,
            lambda r, v: spread(0.0, LANES),
            lambda r, v, total: store(pairs.scores, total, r, at(v)),
            _add_pair,
        )

    def _all_visible(self, rows: Rows) -> Expr:
        """Whether each of the rows attends to all keys of its steps."""
        shape, keys = self.cut.shape, rows.steps * STEP
        first = self._position(rows.tile, rows.first) - rows.begin
        seen = rows.size >= keys
        if shape.causal:
            seen = T.And(seen, first + 1 >= keys)
        if shape.window is None:
            return seen
        last = self._position(rows.tile, rows.first + (rows.count - 1)) - rows.begin
        seen = T.And(seen, last < shape.window)
        return seen if shape.causal else T.And(seen, first + shape.window >= keys)

    def _softmax(self, rows: Rows, scratch: Scratch, masked: bool) -> None:
        """Turn scores into weights 2 ** (score - top), in pairs; update totals, and factors for
        older sums.

        Scales of 8-bit pages are applied here, once a key: the key's to its score, the value's to
        its weight, but not to the total.
        """
        pairs, scales = scratch.pairs, self.cut.layout.is_int8
        best, total = Registers(1, LANES), Registers(1, LANES)
        changed = masked or scales or self.cut.shape.softcap is not None
        with T.serial(rows.count) as r:
            best[0] = spread(NO_SCORE, LANES)
            with T.serial(2 * rows.steps) as v:
                at = span(v * LANES, LANES)
                score = pairs.scores[r, at]
                if scales:
                    score = score * scratch.scales[KEYS, at]
                score = bind(self._visible(self._apply_softcap(score), rows, r, v, masked))
                if changed:
                    store(pairs.scores, score, r, at)
                best[0] = maximum(score, best[0])
            row = rows.first + r
            old = bind(scratch.top[row])
            store(pairs.shrink, old, r)
            store(scratch.top, maximum(max_lanes(best[0]), old), row)
        with T.serial(rows.count) as r:
            row = rows.first + r
            old, new = bind(pairs.shrink[r]), bind(scratch.top[row])
            total[0] = spread(0.0, LANES)
            with T.serial(rows.steps) as step:
                two = []
                for part in range(2):
                    at = span(step * STEP + part * LANES, LANES)
                    weight = exp2_falling(pairs.scores[r, at] - spread(new, LANES))
                    total[0] = total[0] + weight
                    if scales:  # past the block's end they may be no numbers
                        scaled = weight * scratch.scales[VALUES, at]
                        none = spread(0.0, LANES)
                        weight = bind(T.Select(weight == none, none, scaled))
                    two.append(weight)
                store(pairs.weights, halves(*two), r, span(step * LANES, LANES))
            factor = exp2_falling(old - new)
            store(pairs.shrink, factor, r)
            store(scratch.total, scratch.total[row] * factor + sum_lanes(total[0]), row)

    def _apply_softcap(self, score: Expr) -> Expr:
        """Apply the soft cap, then multiply by log2(e)."""
        if (cap := self.cut.shape.softcap) is None:
            return score
        return tanh(score * spread(1.0 / cap, LANES)) * spread(cap * _LOG2E, LANES)

    def _visible(self, score: Expr, rows: Rows, r: Expr, v: Expr, masked: bool) -> Expr:
        """-infinity where the key is ahead of the query, outside its window, or past the block's
        end."""
        if not masked:
            return score
        shape = self.cut.shape
        position = T.Cast("int32", self._position(rows.tile, rows.first + r) - rows.begin)
        key = T.Ramp(T.Cast("int32", v * LANES), 1, LANES)
        ahead = T.Cast("int32", rows.size)
        if shape.visible_until:
            token, _ = self.cut.row(rows.tile, rows.first + r)
            last = self.cache.visible_until(token) - rows.begin
            ahead = T.min(ahead, T.Cast("int32", last) + 1)
        elif shape.causal:
            ahead = T.min(ahead, position + 1)
        elif shape.window is not None:
            ahead = T.min(ahead, position + shape.window)
        seen = key < spread(bind(ahead), LANES)
        if shape.visible_from:
            token, _ = self.cut.row(rows.tile, rows.first + r)
            first = T.Cast("int32", self.cache.visible_from(token) - rows.begin)
            seen = T.And(seen, key >= spread(bind(first), LANES))
        if shape.window is not None:
            seen = T.And(seen, key > spread(bind(position - shape.window), LANES))
        return T.Select(seen, score, spread(-T.infinity("float32"), LANES))

    def _accumulate(self, rows: Rows, column: int, vectors: int, scratch: Scratch) -> None:
        """`_add_values` for some dimensions."""
        pairs, sums = scratch.pairs, scratch.sums

        def at(v: int) -> Expr:
            return span(column + v * LANES, LANES)

        def walk(step: Step) -> None:
            with T.serial(T.floordiv(rows.seen + 1, 2)) as j:
                step(lambda r: pairs.weights[r, j], lambda v: pairs.values[j, at(v)])

        product(
            rows.count,
            vectors,
            LANES,
            walk,
            lambda r, v: sums[rows.first + r, at(v)] * spread(pairs.shrink[r], LANES),
            lambda r, v, total: store(sums, total, rows.first + r, at(v)),
            _add_pair,
        )


def _add_pair(total: Expr, a: Expr, b: Expr) -> Expr:
    return dot2(total, T.reinterpret("uint16x32", b), T.reinterpret("uint16x32", a))
