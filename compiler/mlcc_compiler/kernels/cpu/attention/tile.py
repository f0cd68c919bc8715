"""One task of paged attention: a tile of query rows of one KV head against a range of keys.

FlashAttention (Dao et al., 2022) on a CPU: keys are taken in blocks, shared by all query rows of
the tile, that is by several tokens and by every head of the group; scores, running maximum and sum
stay in scratch. Distribution of tiles and the merging of key ranges are in `attention.py`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlcc.artifact.schema import DTYPE_BYTES
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.attention.amx_tile import AmxTile
from mlcc_compiler.kernels.cpu.attention.bf16_tile import Bf16Tile
from mlcc_compiler.kernels.cpu.attention.blocking import (
    FEW,
    KEYS,
    LINE,
    NO_SCORE,
    VALUES,
    Blocking,
    Cache,
    Scratch,
    Tile,
)
from mlcc_compiler.kernels.cpu.attention.byte_products import ByteScores, ByteValues
from mlcc_compiler.kernels.cpu.attention.columns import ColumnScores
from mlcc_compiler.kernels.cpu.attention.scores import Scores
from mlcc_compiler.kernels.cpu.isa.register_tile import (
    Step,
    TileShape,
    product,
    row_tiles,
    split,
    tile_shape,
)
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    exp_falling,
    max_lanes,
    maximum,
    span,
    spread,
    sum_lanes,
    tanh,
)
from mlcc_compiler.kernels.frame import Expr, store

Score = Callable[[Tile, Expr, Expr, Scratch], None]
"""(tile, first key of the block, keys, scratch): fills scratch.scores."""
_AHEAD = 4  # pages between a prefetch of values and their use


class TileKernel:
    """Emits the statements of a task."""

    def __init__(self, cut: Blocking, cache: Cache) -> None:
        self.cut, self.cache = cut, cache
        self.scores = self._scores()
        self.bf16 = self._bf16()
        self.bytes = ByteValues(cut, cache) if cut.uses_byte_dot else None

    def _scores(self) -> Scores:
        if self.cut.uses_byte_dot:
            return ByteScores(self.cut, self.cache)
        return (ColumnScores if self.cut.key_columns else Scores)(self.cut, self.cache)

    def _bf16(self) -> Bf16Tile | None:
        if not self.cut.uses_bf16:
            return None
        return (AmxTile if self.cut.uses_amx else Bf16Tile)(self.cut, self.cache)

    def run(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        """Fill scratch.sums, .top and .total; a row's output is sums / total."""
        if self.cut.shape.group > FEW:
            self._run_many(tile, q, scratch)
            return
        with T.If(tile.few):
            with T.Then():
                ask = self.cut.key_columns
                self._load_queries(tile, q, scratch)
                self.scores.start(tile, scratch)
                self._blocks(tile, self.cut.long_block, self.scores.few, scratch.long(), ask)
            with T.Else():
                self._run_many(tile, q, scratch)

    def _run_many(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        if self.bf16 is not None:
            self.bf16.run(tile, q, scratch)
            return
        self._load_queries(tile, q, scratch)
        self._blocks(tile, self.cut.block, self.scores.many, scratch, False)

    def _blocks(self, tile: Tile, block: int, score: Score, scratch: Scratch, few: bool) -> None:
        """Loop over the blocks of the range's keys."""
        with self.cut.blocks(tile, block) as (begin, size):
            score(tile, begin, size, scratch)
            if self.cut.layout.is_int8:
                self.cache.load_scales(tile, begin, size, scratch)
            self._softmax(tile, begin, size, scratch)
            self._add_values(tile, begin, size, scratch, few)

    def _load_queries(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        """Scale the queries; zero sums and totals."""
        cut, lanes = self.cut, self.cut.dim_lanes
        with T.serial(tile.rows) as r:
            token, head = self.cut.row(tile, r)
            with T.serial(cut.shape.head_dim // lanes) as j:
                at = span(j * lanes, lanes)
                store(scratch.queries, q[token, head, at] * spread(cut.shape.scale, lanes), r, at)
                store(scratch.sums, spread(0.0, lanes), r, at)
            store(scratch.top, T.float32(NO_SCORE), r)
            store(scratch.total, T.float32(0), r)

    def _softmax(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Turn scores into weights exp(score - top); update totals and the factor for older sums.

        Scales of 8-bit pages are applied here, once a key: the key's to its score, the value's to
        its weight, but not to the total.
        """
        cut, lanes = self.cut, self.cut.key_lanes
        vectors = bind(T.floordiv(size + lanes - 1, lanes))
        best, total = Registers(1, lanes), Registers(1, lanes)
        with T.serial(tile.rows) as r:
            position = bind(tile.position + T.floordiv(r, cut.shape.group) - begin)
            last = position
            if cut.shape.visible_until:
                last = bind(self.cache.visible_until(cut.row(tile, r)[0]) - begin)
            before = self._before(tile, r, position, begin)
            best[0], total[0] = spread(NO_SCORE, lanes), spread(0.0, lanes)
            with T.serial(vectors) as v:
                at = span(v * lanes, lanes)
                dot = scratch.scores[r, at]
                if cut.layout.is_int8:
                    dot = dot * scratch.scales[KEYS, at]
                score = bind(self._visible(dot, v * lanes, position, (before, last), size))
                store(scratch.scores, score, r, at)
                best[0] = maximum(score, best[0])
            old = bind(scratch.top[r])
            new = bind(maximum(max_lanes(best[0]), old))
            with T.serial(vectors) as v:
                at = span(v * lanes, lanes)
                weight = bind(exp_falling(scratch.scores[r, at] - spread(new, lanes)))
                total[0] = total[0] + weight
                if cut.layout.is_int8:
                    weight = weight * scratch.scales[VALUES, at]
                store(scratch.scores, weight, r, at)
            store(scratch.shrink, old, r)
            store(scratch.top, new, r)
            store(scratch.added, sum_lanes(total[0]), r)
        self._shrink(tile, scratch)

    def _shrink(self, tile: Tile, scratch: Scratch) -> None:
        """For all rows: the correction factor of older sums, and the corrected totals;
        scratch.shrink holds the older maxima."""
        lanes = self.cut.lanes
        with T.serial(T.floordiv(tile.rows + lanes - 1, lanes)) as i:
            at = span(i * lanes, lanes)
            old, new = bind(scratch.shrink[at]), bind(scratch.top[at])
            factor = T.Select(new > old, exp_falling(old - new), spread(1.0, lanes))
            store(scratch.shrink, bind(factor), at)
            store(scratch.total, scratch.total[at] * scratch.shrink[at] + scratch.added[at], at)

    def _before(self, tile: Tile, r: Expr, position: Expr, begin: Expr) -> Expr | None:
        """The key before the first that a row sees, from `begin` on; None = it sees all from 0."""
        shape = self.cut.shape
        if shape.visible_from:
            first = self.cache.visible_from(self.cut.row(tile, r)[0])
            return bind(T.Cast("int32", first - begin - 1))
        if shape.window is not None:
            return T.Cast("int32", position) - shape.window
        return None

    def _visible(
        self, score: Expr, first: Expr, position: Expr, seen: tuple[Expr | None, Expr], size: Expr
    ) -> Expr:
        """Score after the soft cap; -infinity where the key is past the last that the query at
        `position` sees, not after the one `before` its first, or past the block's `size`.
        seen: (before, last)."""
        cut, lanes = self.cut, self.cut.key_lanes
        before, last = seen
        if cut.shape.softcap is not None:
            score = tanh(score * spread(1.0 / cut.shape.softcap, lanes)) * spread(
                cut.shape.softcap, lanes
            )
        position = T.Cast("int32", position)
        key = T.Ramp(T.Cast("int32", first), 1, lanes) if lanes > 1 else first
        if cut.shape.causal:
            visible = key <= spread(T.Cast("int32", last), lanes)
        else:
            ahead = size if cut.shape.window is None else T.min(size, position + cut.shape.window)
            visible = key < spread(T.Cast("int32", ahead), lanes)
        if before is not None:
            visible = T.And(visible, key > spread(before, lanes))
        return T.Select(visible, score, spread(-T.infinity("float32"), lanes))

    def _add_values(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch, few: bool) -> None:
        """scratch.sums = sums * shrink + weights x values; few rows prefetch later values."""
        cut = self.cut
        if few and self.bytes is not None:
            self.bytes.add(tile, begin, size, scratch)
            return
        if not few:
            self._load_values(tile, begin, size, scratch)
        fit = tile_shape(cut.dim_lanes, cut.lanes)
        column = 0
        for vectors in split(cut.shape.head_dim // fit.lanes, fit.vectors):

            def part(row: Expr, rows: int, column: int = column, vectors: int = vectors) -> None:
                shape = TileShape(rows, vectors, column)
                self._accumulate(tile, begin, size, row, shape, scratch, few)

            row_tiles(tile.rows, fit.rows, cut.shape.group, part)
            column += vectors * fit.lanes

    def _load_values(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Load a block's values into scratch.values, once for all rows."""
        cut, lanes = self.cut, self.cut.dim_lanes
        vectors = cut.shape.head_dim // lanes
        with self._pages(tile, begin, size) as (start, page, count), T.grid(count, vectors) as at:
            j, d = at
            value = self.cache.load_value(page, tile.head, j, d * lanes, lanes)
            store(scratch.values, value, start + j, span(d * lanes, lanes))

    @contextmanager
    def _pages(self, tile: Tile, begin: Expr, size: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
        """The loop over a block's pages: (first key in the block, page, keys)."""
        page_size = self.cut.layout.page_size
        with T.serial(T.floordiv(size + page_size - 1, page_size)) as i:
            start = bind(i * page_size)
            page, _ = self.cache.place(tile, begin + start)
            yield start, page, bind(T.min(size - start, page_size))

    def _accumulate(
        self,
        tile: Tile,
        begin: Expr,
        size: Expr,
        row: Expr,
        part: TileShape,
        scratch: Scratch,
        few: bool,
    ) -> None:
        """A register tile of sums; part.lanes is its first column."""
        cut, lanes, first = self.cut, self.cut.dim_lanes, part.lanes
        page_size, dim = cut.layout.page_size, cut.shape.head_dim
        line = LINE // DTYPE_BYTES[cut.layout.dtype]

        def at(v: int) -> Expr:
            return span(first + v * lanes, lanes)

        def walk(step: Step) -> None:
            """Of few rows from the pages, of many from scratch."""
            if not few:
                with T.serial(size) as j:
                    step(
                        lambda r: scratch.scores[row + r, j],
                        lambda v: scratch.values[j, at(v)],
                    )
                return
            with self._pages(tile, begin, size) as (start, page, count):
                ahead = self.cache.page_of(tile, bind(begin + start + _AHEAD * page_size))
                with T.serial(count) as j:
                    for d in range(first, first + part.vectors * lanes, line):
                        self.cache.prefetch_line(VALUES, ahead, tile.head, j * dim + d)
                    step(
                        lambda r: scratch.scores[row + r, start + j],
                        lambda v: self.cache.load_value(
                            page, tile.head, j, first + v * lanes, lanes
                        ),
                    )

        product(
            part.rows,
            part.vectors,
            lanes,
            walk,
            lambda r, v: scratch.sums[row + r, at(v)] * spread(scratch.shrink[row + r], lanes),
            lambda r, v, total: store(scratch.sums, total, row + r, at(v)),
        )
