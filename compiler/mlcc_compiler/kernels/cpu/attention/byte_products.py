"""Attention of few rows to 8-bit pages by byte dot products: four products and their sum in one
instruction (VPDPBUSD, SDOT), without converting the pages.

Pages store quads (`kv_place`): a vector is four dimensions of neighbouring keys, or neighbouring
dimensions of four values. Queries, and a block's weights times the scales of its values, become two
bytes a number, some 15 bits of the row's largest: 256 times finer than the pages. Sums are
integers. For instructions with unsigned codes, the pages' bytes are flipped to be 128 more, and
sums start at the compensation. Many rows and other CPUs: `columns.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.attention.blocking import (
    KEYS,
    LINE,
    QUAD,
    VALUES,
    Blocking,
    Cache,
    RowBytes,
    Scratch,
    Tile,
)
from mlcc_compiler.kernels.cpu.attention.columns import ColumnScores
from mlcc_compiler.kernels.cpu.isa.isa import Isa, dot4
from mlcc_compiler.kernels.cpu.isa.register_tile import row_tiles, split
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    cast,
    maximum,
    reduce_lanes,
    span,
    spread,
    vector,
)
from mlcc_compiler.kernels.frame import Expr, store

_VECTORS = 2  # of keys, or of dimensions, that share a load of the rows' bytes
_FINER = 254  # steps of the second byte in one of the first
_LARGEST = 127.0
_TINY = 1e-35  # rows below this are zero: the inverse of their scale would overflow
_ROUND, _ROUND_BITS = 12582912.0, 0x4B400000  # 1.5 * 2**23, which rounds to even in the low bits
_FLIP = 128
_KEYS_AHEAD = 64  # keys between a prefetch of keys and their use
_AHEAD = 4  # pages between a prefetch of values and their use


class ByteScores(ColumnScores):
    """`Scores` with byte products for few rows."""

    def start(self, tile: Tile, scratch: Scratch) -> None:
        super().start(tile, scratch)
        rows, dim = scratch.query_bytes, self.cut.shape.head_dim
        with T.serial(tile.rows) as r:
            to_bytes(rows, r, dim, self.cut.dim_lanes, lambda at: scratch.queries[r, at])

    def few(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        cut = self.cut
        step = cut.key_lanes * _VECTORS
        with T.serial(T.floordiv(size + step - 1, step)) as i:
            first = bind(i * step)
            row_tiles(
                tile.rows,
                _rows_at_once(cut),
                cut.shape.group,
                lambda row, rows: self._score_bytes(tile, begin, first, row, rows, scratch),
            )

    def _score_bytes(
        self, tile: Tile, begin: Expr, first: Expr, row: Expr, rows: int, scratch: Scratch
    ) -> None:
        """A register tile of scores: `rows` from row, by the keys from begin + first on."""
        cut, cache = self.cut, self.cache
        lanes, size = cut.key_lanes, cut.layout.page_size
        step = lanes * _VECTORS
        places = [bind(begin + first + v * lanes) for v in range(_VECTORS)]
        pages = [cache.page_of(tile, key) for key in places]
        offsets = [bind(T.floormod(key, size)) for key in places]
        later = [bind(begin + first + _KEYS_AHEAD + k) for k in range(0, step, size)]
        ahead = [(cache.page_of(tile, key), bind(T.floormod(key, size) * QUAD)) for key in later]
        sums = _Sums(cut.isa, scratch.query_bytes, row, rows, _VECTORS, lanes)
        with T.serial(cut.shape.head_dim // QUAD) as j:
            d = bind(T.Cast("int64", j * QUAD))
            for page, at in ahead:
                for element in range(0, min(size, step) * QUAD, LINE):
                    cache.prefetch_line(KEYS, page, tile.head, d * size + at + element)
            sums.add(d, lambda v: cache.key_quads(pages[v], tile.head, d, offsets[v], lanes))
        for r in range(rows):
            for v in range(_VECTORS):
                at = span(first + v * lanes, lanes)
                store(scratch.scores, sums.value(r, v), row + r, at)


class ByteValues:
    """Emits scratch.sums = sums * shrink + weights x values, for few rows."""

    def __init__(self, cut: Blocking, cache: Cache) -> None:
        self.cut, self.cache = cut, cache

    def add(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Add a block, whose weights are in `scratch.scores`."""
        cut = self.cut
        lanes = cut.key_lanes

        def weights(r: Expr, at: Expr) -> Expr:
            """Zero past the block's end."""
            inside = _ramp(at, lanes) < spread(T.Cast("int32", size), lanes)
            return T.Select(inside, scratch.scores[r, at], spread(0.0, lanes))

        whole = bind(T.floordiv(size + lanes - 1, lanes) * lanes)
        with T.serial(tile.rows) as r:
            to_bytes(scratch.weight_bytes, r, whole, lanes, partial(weights, r))
        column = 0
        for vectors in split(cut.shape.head_dim // cut.dim_lanes, _VECTORS):

            def part(row: Expr, rows: int, column: int = column, vectors: int = vectors) -> None:
                self._accumulate(tile, begin, size, row, rows, column, vectors, scratch)

            row_tiles(tile.rows, _rows_at_once(cut), cut.shape.group, part)
            column += vectors * cut.dim_lanes

    def _accumulate(
        self,
        tile: Tile,
        begin: Expr,
        size: Expr,
        row: Expr,
        rows: int,
        column: int,
        vectors: int,
        scratch: Scratch,
    ) -> None:
        """A register tile of sums, `vectors` of dimensions from `column` on."""
        cut, cache, lanes = self.cut, self.cache, self.cut.dim_lanes
        page_size, dim = cut.layout.page_size, cut.shape.head_dim
        sums = _Sums(cut.isa, scratch.weight_bytes, row, rows, vectors, lanes)
        with T.serial(T.floordiv(size + page_size - 1, page_size)) as i:
            start = bind(i * page_size)
            page, _ = cache.place(tile, begin + start)
            ahead = cache.page_of(tile, bind(begin + start + _AHEAD * page_size))
            left = T.min(size - start, page_size)
            with T.serial(T.floordiv(left + QUAD - 1, QUAD)) as j:
                key = bind(j * QUAD)
                for element in range(0, vectors * lanes * QUAD, LINE):
                    cache.prefetch_line(
                        VALUES, ahead, tile.head, key * dim + column * QUAD + element
                    )
                sums.add(
                    start + key,
                    lambda v: cache.value_quads(page, tile.head, key, column + v * lanes, lanes),
                )
        for r in range(rows):
            for v in range(vectors):
                at = span(column + v * lanes, lanes)
                old = scratch.sums[row + r, at] * spread(scratch.shrink[row + r], lanes)
                store(scratch.sums, old + sums.value(r, v), row + r, at)


class _Sums:
    """A register tile: for each row and vector, the products with both bytes of the row."""

    def __init__(
        self, isa: Isa, of: RowBytes, row: Expr, rows: int, vectors: int, lanes: int
    ) -> None:
        self.isa = replace(isa, vector_bits=32 * lanes)
        self.of, self.row, self.rows, self.vectors, self.lanes = of, row, rows, vectors, lanes
        self.sums = Registers(2 * rows * vectors, lanes, "int32")
        for part in range(2):
            for r in range(rows):
                less = T.int32(0) if isa.signed_codes else of.sums[part, row + r] * T.int32(-_FLIP)
                begin = bind(less)
                for v in range(vectors):
                    self.sums[self._place(part, r, v)] = spread(begin, lanes)

    def _place(self, part: int, r: int, v: int) -> int:
        return (part * self.rows + r) * self.vectors + v

    def add(self, at: Expr, load: Callable[[int], Expr]) -> None:
        """Add four numbers of the rows from `at` on times load(v), bytes of pages."""
        wide = QUAD * self.lanes
        codes = []
        for v in range(self.vectors):
            found = T.reinterpret(vector("uint8", wide), load(v))
            if not self.isa.signed_codes:
                found = T.bitwise_xor(found, spread(T.uint8(_FLIP), wide))
            codes.append(bind(found))
        for part in range(2):
            for r in range(self.rows):
                four = T.reinterpret("int32", self.of.parts[part, self.row + r, span(at, QUAD)])
                x = T.reinterpret(vector("int8", wide), spread(bind(four), self.lanes))
                for v in range(self.vectors):
                    place = self._place(part, r, v)
                    self.sums[place] = dot4(self.isa, self.sums[place], codes[v], x)

    def value(self, r: int, v: int) -> Expr:
        """The sum of row r as a float."""
        first, second = (cast("float32", self.sums[self._place(part, r, v)]) for part in range(2))
        finer = second * spread(1.0 / _FINER, self.lanes)
        return (first + finer) * spread(self.of.scale[self.row + r], self.lanes)


def _rows_at_once(cut: Blocking) -> int:
    """Rows per register tile: two sums for each row and vector stay in registers."""
    return 4 if cut.isa.registers >= 32 else 2


def to_bytes(rows: RowBytes, r: Expr, size: Expr, lanes: int, load: Callable[[Expr], Expr]) -> None:
    """Emit row r of `rows`: `size` numbers, in whole vectors of `lanes`, of which load(span) gives
    one. A non-finite number makes the scale non-finite."""
    ints = vector("int32", lanes)
    steps = size // lanes if isinstance(size, int) else T.floordiv(size, lanes)
    top, sums = Registers(1, lanes, "int32"), Registers(2, lanes, "int32")
    for registers, count in ((top, 1), (sums, 2)):
        for i in range(count):
            registers[i] = spread(T.int32(0), lanes)
    with T.serial(steps) as j:
        bits = T.reinterpret(ints, load(span(j * lanes, lanes)))
        bits = bind(T.bitwise_and(bits, spread(T.int32(0x7FFFFFFF), lanes)))
        top[0] = maximum(bits, top[0])
    most = bind(T.reinterpret("float32", reduce_lanes(top[0], maximum)))
    inverse = bind(T.Select(most > T.float32(_TINY), T.float32(_LARGEST) / most, T.float32(0)))
    store(rows.scale, most * T.float32(1 / _LARGEST), r)

    def rounded(x: Expr) -> Expr:
        moved = x + spread(_ROUND, lanes)
        return bind(T.reinterpret(ints, moved) - spread(T.int32(_ROUND_BITS), lanes))

    with T.serial(steps) as j:
        at = span(j * lanes, lanes)
        x = bind(load(at) * spread(inverse, lanes))
        first = rounded(x)
        second = rounded((x - cast("float32", first)) * spread(float(_FINER), lanes))
        for part, codes in enumerate((first, second)):
            store(rows.parts, cast("int8", codes), part, r, at)
            sums[part] = sums[part] + codes
    for part in range(2):
        store(rows.sums, reduce_lanes(sums[part], lambda a, b: a + b), part, r)


def _ramp(at: Expr, lanes: int) -> Expr:
    """The indices of a span's elements, in 32 bits."""
    first = at if lanes == 1 else at.base
    return T.Ramp(T.Cast("int32", first), 1, lanes)
