"""One task of paged attention: a tile of query rows of one KV head against a range of keys.

FlashAttention (Dao et al., 2022) on a CPU: keys are taken in blocks; a block is transposed once
into scratch and shared by all query rows of the tile, that is by several tokens and by every head
of the group; scores, running maximum and sum stay in scratch. Which tile is whose task, and the
merging of key ranges, is in `attention.py`.
"""

from dataclasses import dataclass
from typing import Any

from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.cpu.register_tile import (
    Step,
    TileShape,
    product,
    row_tiles,
    split,
    tile_shape,
    transpose,
)
from mlcc_compiler.kernels.cpu.vector_math import (
    Expr,
    Registers,
    bind,
    cast,
    exp,
    fit_lanes,
    max_lanes,
    maximum,
    span,
    spread,
    store,
    sum_lanes,
    tanh,
)

_BLOCK = 64  # keys per block, unless a page holds more
_ROWS = 64  # query rows per tile: tokens times heads of a group
NO_SCORE = -1e30  # below every score, and still finite


@dataclass(frozen=True)
class AttentionShape:
    """What is known at compile time."""

    heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    scale: float
    window: int | None
    softcap: float | None
    kv_dtype: str
    lanes: int

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def tokens(self) -> int:
        """Tokens per tile."""
        return max(1, (_ROWS if self.head_dim <= 128 else _ROWS // 2) // self.group)

    @property
    def rows(self) -> int:
        return self.tokens * self.group

    @property
    def block(self) -> int:
        return -(-_BLOCK // self.page_size) * self.page_size

    @property
    def key_lanes(self) -> int:
        """Neighbouring keys in a vector of scores."""
        return fit_lanes(self.page_size, self.lanes)

    @property
    def dim_lanes(self) -> int:
        """Neighbouring dimensions in a vector of values."""
        return fit_lanes(self.head_dim, self.lanes)


class Scratch:
    """What a task needs, on its thread's stack: 70 KiB at head_dim 64, 100 at 128, 140 at 256."""

    def __init__(self, shape: AttentionShape) -> None:
        rows, dim, block = shape.rows, shape.head_dim, shape.block
        self.queries = T.alloc_buffer((rows, dim), "float32")
        self.scores = T.alloc_buffer((rows, block), "float32")
        self.sums = T.alloc_buffer((rows, dim), "float32")
        self.keys = T.alloc_buffer((dim, block), "float32")
        self.top = T.alloc_buffer((rows,), "float32")
        self.total = T.alloc_buffer((rows,), "float32")
        self.shrink = T.alloc_buffer((rows,), "float32")


@dataclass(frozen=True)
class Tile:
    """What is known at run time: expressions, all int64."""

    token: Expr
    """First row of q."""
    rows: Expr
    """Query rows: tokens times group."""
    head: Expr
    """The KV head."""
    position: Expr
    """Of the first token."""
    first_page: Expr
    """Index into page_indices of the sequence's first page."""
    begin: Expr
    """First key, at a page's begin."""
    end: Expr
    """One past the last key."""


class TileKernel:
    """Emits the statements of a task; `pages` and `page_indices` are the kernel's arguments."""

    def __init__(self, shape: AttentionShape, pages: Any, page_indices: Any) -> None:
        self.shape = shape
        self.pages = pages
        self.page_indices = page_indices

    def run(self, tile: Tile, q: Any, scratch: Scratch) -> None:
        """Fill scratch.sums, .top and .total; the answer of a row is sums / total."""
        self._load_queries(tile, q, scratch)
        block = self.shape.block
        count = T.floordiv(T.max(tile.end - tile.begin, 0) + block - 1, block)
        with T.serial(count) as i:
            begin = bind(tile.begin + i * block)
            size = bind(T.min(tile.end - begin, block))
            self._load_keys(tile, begin, size, scratch)
            self._score(tile, size, scratch)
            self._soften(tile, begin, size, scratch)
            self._add_values(tile, begin, size, scratch)

    def row(self, tile: Tile, r: Expr) -> tuple[Expr, Expr]:
        """(row of q, head) of a row of the tile."""
        group = self.shape.group
        token = bind(tile.token + T.floordiv(r, group))
        return token, bind(tile.head * group + T.floormod(r, group))

    def _page(self, tile: Tile, key: Expr) -> Expr:
        index = tile.first_page + T.floordiv(key, self.shape.page_size)
        return bind(T.Cast("int64", self.page_indices[index]))

    def _load_queries(self, tile: Tile, q: Any, scratch: Scratch) -> None:
        """Scaled queries, row after row; sums and totals from zero."""
        shape, lanes = self.shape, self.shape.dim_lanes
        with T.serial(tile.rows) as r:
            token, head = self.row(tile, r)
            with T.serial(shape.head_dim // lanes) as j:
                at = span(j * lanes, lanes)
                store(scratch.queries, q[token, head, at] * spread(shape.scale, lanes), r, at)
                store(scratch.sums, spread(0.0, lanes), r, at)
            store(scratch.top, T.float32(NO_SCORE), r)
            store(scratch.total, T.float32(0), r)

    def _load_keys(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Transpose the block: scratch.keys[d, j] = key begin + j. Lanes past its end are junk."""
        shape = self.shape
        side = min(shape.key_lanes, shape.dim_lanes)
        with T.serial(T.floordiv(size + side - 1, side)) as g:
            key = bind(begin + g * side)
            page, offset = self._page(tile, key), bind(T.floormod(key, shape.page_size))
            with T.serial(shape.head_dim // side) as j:
                at = span(j * side, side)
                rows = [
                    cast("float32", self.pages[page, 0, tile.head, offset + i, at])
                    for i in range(side)
                ]
                for i, column in enumerate(transpose(rows)):
                    store(scratch.keys, column, j * side + i, span(g * side, side))

    def _score(self, tile: Tile, size: Expr, scratch: Scratch) -> None:
        """scratch.scores = queries x keys."""
        shape = self.shape
        lanes = shape.key_lanes
        fit = tile_shape(lanes, shape.lanes)
        step = lanes * fit.vectors
        runs = -(-shape.block // step)

        def part(column: Expr, vectors: int) -> None:
            row_tiles(tile.rows, fit.rows, lambda r, n: self._dot(r, n, column, vectors, scratch))

        with T.serial(T.min(T.floordiv(size + step - 1, step), shape.block // step)) as i:
            part(i * step, fit.vectors)
        rest = shape.block % step // lanes
        if rest:
            with T.If(size > (runs - 1) * step), T.Then():
                part((runs - 1) * step, rest)

    def _dot(self, row: Expr, rows: int, column: Expr, vectors: int, scratch: Scratch) -> None:
        """A register tile of scores."""
        lanes = self.shape.key_lanes

        def walk(step: Step) -> None:
            with T.serial(self.shape.head_dim) as d:
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

    def _soften(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Scores become weights exp(score - top); totals and the factor for old sums follow."""
        shape, lanes = self.shape, self.shape.key_lanes
        vectors = bind(T.floordiv(size + lanes - 1, lanes))
        best, total = Registers(1, lanes), Registers(1, lanes)
        with T.serial(tile.rows) as r:
            position = bind(tile.position + T.floordiv(r, shape.group) - begin)
            best[0], total[0] = spread(NO_SCORE, lanes), spread(0.0, lanes)
            with T.serial(vectors) as v:
                at = span(v * lanes, lanes)
                score = bind(self._visible(scratch.scores[r, at], v * lanes, position))
                store(scratch.scores, score, r, at)
                best[0] = maximum(score, best[0])
            old = bind(scratch.top[r])
            new = bind(maximum(max_lanes(best[0]), old))
            with T.serial(vectors) as v:
                at = span(v * lanes, lanes)
                weight = bind(exp(scratch.scores[r, at] - spread(new, lanes)))
                store(scratch.scores, weight, r, at)
                total[0] = total[0] + weight
            store(scratch.shrink, T.float32(1), r)
            with T.If(new > old), T.Then():
                store(scratch.shrink, exp(old - new), r)
            store(scratch.top, new, r)
            kept = scratch.total[r] * scratch.shrink[r]
            store(scratch.total, kept + sum_lanes(total[0]), r)

    def _visible(self, score: Expr, first: Expr, position: Expr) -> Expr:
        """Softcapped score; -infinity where the key is ahead of the query or behind its window."""
        shape, lanes = self.shape, self.shape.key_lanes
        if shape.softcap is not None:
            score = tanh(score * spread(1.0 / shape.softcap, lanes)) * spread(shape.softcap, lanes)
        position = T.Cast("int32", position)
        key = T.Ramp(T.Cast("int32", first), 1, lanes) if lanes > 1 else first
        seen = key <= spread(position, lanes)
        if shape.window is not None:
            seen = T.And(seen, key > spread(position - shape.window, lanes))
        return T.Select(seen, score, spread(-T.infinity("float32"), lanes))

    def _add_values(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """scratch.sums = sums * shrink + weights x values."""
        shape = self.shape
        fit = tile_shape(shape.dim_lanes, shape.lanes)
        column = 0
        for vectors in split(shape.head_dim // fit.lanes, fit.vectors):

            def part(row: Expr, rows: int, column: int = column, vectors: int = vectors) -> None:
                self._blend(tile, begin, size, row, TileShape(rows, vectors, column), scratch)

            row_tiles(tile.rows, fit.rows, part)
            column += vectors * fit.lanes

    def _blend(
        self, tile: Tile, begin: Expr, size: Expr, row: Expr, part: TileShape, scratch: Scratch
    ) -> None:
        """A register tile of sums; part.lanes is its first column."""
        shape, lanes, first = self.shape, self.shape.dim_lanes, part.lanes

        def at(v: int) -> Expr:
            return span(first + v * lanes, lanes)

        def walk(step: Step) -> None:
            with T.serial(T.floordiv(size + shape.page_size - 1, shape.page_size)) as i:
                start = bind(i * shape.page_size)
                page = self._page(tile, begin + start)
                with T.serial(T.min(size - start, shape.page_size)) as j:
                    step(
                        lambda r: scratch.scores[row + r, start + j],
                        lambda v: cast(
                            "float32",
                            self.pages[page, 1, tile.head, j, span(first + v * lanes, lanes)],
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
