"""Shared parts of the attention kernel: blocking constants, the current tile, the paged cache.

No arithmetic: scores are in `scores.py`, the online softmax in `tile.py`, the tiling of a step in
`attention.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from mlcc.artifact.schema import DTYPE_BYTES
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import INT8, AttentionShape, KvLayout
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    cast,
    fit_lanes,
    lanes_of,
    prefetch,
    span,
    spread,
    vector,
)
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.step import Step

_BLOCK = 64  # keys per block, unless a page holds more
_PAIR_BLOCK = 128  # likewise, of bf16
_TILE_BLOCK = 256  # likewise, with AMX: sums are read and written less often
_LONG_BLOCK = 256  # of tiles of few rows, likewise: a softmax's folds over lanes are few then
_ROWS = 64  # query rows per tile: tokens times heads of a group
_TALL = (2, 4)  # times as many with AMX, where bringing keys to scratch takes longest
_TASKS = 32  # tiles of a long prompt for all KV heads that must be left for taller ones
LINE = 64  # bytes of a cache line
_PAIR_STEP = 64  # keys of a register tile, which may end behind a block
PAIR_ROWS = 6  # query rows of one
TILE_ROWS = 32  # query rows that AMX multiplies at once
KEY_STEP = 32  # keys whose weighted values are summed at once
FEW = 8  # query rows of tiles that multiply keys out of the pages, and not out of scratch
NO_SCORE = -1e30  # below every score, and still finite
KEYS, VALUES = 0, 1
BYTE_DOTS = frozenset({"avx512vnni", "avxvnni", "neon_dotprod", "neon_i8mm"})
QUAD = 4  # bytes that an instruction multiplies and adds


def uses_quads(layout: KvLayout) -> bool:
    """Whether a CPU's pages of this layout store numbers in groups of four: see `kv_place`."""
    return layout.dtype == INT8 and layout.page_size % QUAD == 0 and layout.head_dim % QUAD == 0


@dataclass(frozen=True)
class Blocking:
    """Blocking of a layer's attention, known at compile time."""

    shape: AttentionShape
    layout: KvLayout
    isa: Isa

    @property
    def lanes(self) -> int:
        return self.isa.lanes

    @property
    def quads(self) -> bool:
        """Whether numbers are stored in groups of four."""
        return uses_quads(self.layout)

    @property
    def uses_byte_dot(self) -> bool:
        """Whether few rows multiply quads as bytes: where that is one instruction."""
        return self.quads and self.isa.dot in BYTE_DOTS

    @property
    def uses_bf16(self) -> bool:
        """Whether products of many rows are bf16: `bf16_tile.py`, or with AMX `amx_tile.py`."""
        isa = self.isa
        able = (isa.has_bf16 or isa.has_tiles) and isa.activation_parts == 1
        whole = self.layout.page_size % 16 == 0 and self.shape.head_dim % 32 == 0
        return able and whole and self.key_columns and self.layout.dtype != "float32"

    @property
    def uses_amx(self) -> bool:
        """Whether those products are AMX's."""
        return self.isa.has_tiles and self.uses_bf16

    @property
    def aligns_keys(self) -> bool:
        """Whether AMX's tiles begin at a whole step of keys, though the first may be in no page any
        more: it sums the even and the odd keys of a step apart. (Pages of 48 and 80 are left as
        they are: a chunk of a prompt then rounds as it is cut.)"""
        return self.uses_amx and self.shape.slides and 2 * self.layout.page_size == KEY_STEP

    @property
    def key_columns(self) -> bool:
        """Whether a page stores keys dimension by dimension, as `KvLayout` has them on a CPU; if
        not, key by key, like values."""
        return True

    @property
    def tokens(self) -> int:
        """Tokens per tile."""
        return max(1, (_ROWS if self.shape.head_dim <= 128 else _ROWS // 2) // self.shape.group)

    @property
    def few_tokens(self) -> int:
        """Tokens per tile of a sequence that has few: a power of two, of at most `FEW` rows where
        a token has no more."""
        group = self.shape.group
        most = FEW // group if group <= FEW else self.tokens
        return 1 << most.bit_length() - 1

    @property
    def heights(self) -> list[tuple[int, int]]:
        """Pairs: tokens per tile, and the least tokens of a sequence whose tiles are that tall."""
        found = [(self.tokens, 0)]
        for times in _TALL if self.uses_amx else ():
            height = times * self.tokens
            found.append((height, height * -(-_TASKS // self.shape.kv_heads)))
        return found

    @property
    def rows(self) -> int:
        """Query rows per tile, at most."""
        return self.heights[-1][0] * self.shape.group

    @property
    def block(self) -> int:
        wanted = _PAIR_BLOCK if self.uses_bf16 else _BLOCK
        wanted = _TILE_BLOCK if self.uses_amx else wanted
        return -(-wanted // self.layout.page_size) * self.layout.page_size

    @property
    def long_block(self) -> int:
        """Keys per block of a tile of at most `FEW` rows."""
        return -(-_LONG_BLOCK // self.layout.page_size) * self.layout.page_size

    @property
    def key_lanes(self) -> int:
        """Neighbouring keys in a vector of scores."""
        return fit_lanes(self.layout.page_size, self.lanes)

    @property
    def dim_lanes(self) -> int:
        """Neighbouring dimensions in a vector of values."""
        return fit_lanes(self.shape.head_dim, self.lanes)

    @contextmanager
    def blocks(self, tile: Tile, block: int) -> Iterator[tuple[Expr, Expr]]:
        """Loop over a tile's keys: (first key, keys) of blocks that end at multiples of `block`."""
        first = bind(T.floordiv(tile.begin, block))
        last = bind(T.floordiv(tile.end + block - 1, block))
        with T.serial(T.Select(tile.end > tile.begin, last - first, T.int64(0))) as i:
            start = bind((first + i) * block)
            begin = bind(T.max(start, tile.begin))
            yield begin, bind(T.min(start + block, tile.end) - begin)

    def row(self, tile: Tile, r: Expr) -> tuple[Expr, Expr]:
        """(row of q, head) of a row of a tile."""
        token = bind(tile.token + T.floordiv(r, self.shape.group))
        return token, bind(tile.head * self.shape.group + T.floormod(r, self.shape.group))

    @property
    def side(self) -> int:
        """Neighbouring keys that are scored together; they lie in one page."""
        return min(self.key_lanes, self.dim_lanes)


class Scratch:
    """A task's scratch memory: 88 KiB at head_dim 64, 152 at 128, 208 at 256, with AMX 200, 360 and
    480. Fits a core's own cache."""

    def __init__(self, cut: Blocking) -> None:
        rows, dim, block = cut.rows, cut.shape.head_dim, cut.block
        if cut.uses_amx:
            rows = -(-rows // TILE_ROWS) * TILE_ROWS
        self.sums = T.alloc_buffer((rows, dim), "float32")
        if cut.uses_bf16:
            self.queries = T.alloc_buffer((FEW, dim), "float32")
        if cut.uses_amx:
            self.tiles = Tiles(rows, dim, block)
        elif cut.uses_bf16:
            self.pairs = Pairs(rows, dim, block)
        else:
            self.queries = T.alloc_buffer((rows, dim), "float32")
            self.scores = T.alloc_buffer((rows, block), "float32")
            self.keys = T.alloc_buffer((dim, block), "float32")
            self.values = T.alloc_buffer((block, dim), "float32")
        whole = -(-rows // cut.lanes) * cut.lanes  # rows are lanes, too
        self.top = T.alloc_buffer((whole,), "float32")
        self.total = T.alloc_buffer((whole,), "float32")
        self.added = T.alloc_buffer((whole,), "float32")
        self.shrink = T.alloc_buffer((whole,), "float32")
        # register tiles of keys may end behind the block
        self.long_scores = T.alloc_buffer((FEW, cut.long_block + 4 * cut.lanes), "float32")
        if cut.layout.is_int8:
            keys = -(-max(block, cut.long_block) // _PAIR_STEP) * _PAIR_STEP
            self.scales = T.alloc_buffer((2, keys), "float32")
        if cut.uses_byte_dot:
            self.query_bytes = RowBytes(FEW, dim)
            self.weight_bytes = RowBytes(FEW, cut.long_block)

    def long(self) -> Scratch:
        """The same scratch, with scores of few rows by a long block."""
        other = copy(self)
        other.scores = self.long_scores
        return other


class Pairs:
    """Scratch of many rows as bf16: two in a lane of 32 bits. Intermediates of a few rows are
    float32, except weights."""

    def __init__(self, rows: int, dim: int, block: int) -> None:
        whole, at_once = -(-block // _PAIR_STEP) * _PAIR_STEP, PAIR_ROWS
        self.queries = T.alloc_buffer((rows, dim // 2), "int32")
        self.keys = T.alloc_buffer((dim // 2, whole), "int32")
        self.values = T.alloc_buffer((whole // 2, dim), "int32")
        self.scores = T.alloc_buffer((at_once, whole), "float32")
        self.weights = T.alloc_buffer((at_once, whole // 2), "int32")
        self.shrink = T.alloc_buffer((at_once,), "float32")


class Tiles:
    """Scratch of many rows for AMX: tiles of 16 rows by 16 words of 32 bits, each contiguous.

    A word of queries and weights is two columns, one of keys and values two rows.
    """

    def __init__(self, rows: int, dim: int, block: int) -> None:
        half, steps = TILE_ROWS // 2, -(-block // KEY_STEP)
        words = half * half
        self.queries = T.alloc_buffer((rows // half, dim // KEY_STEP, words), "int32")
        self.keys = T.alloc_buffer((2 * steps, dim // KEY_STEP, words), "int32")
        self.values = T.alloc_buffer((steps, dim // half, words), "int32")
        self.weights = T.alloc_buffer((steps, 2, words), "int32")
        self.scores = T.alloc_buffer((2, TILE_ROWS, KEY_STEP), "float32")
        self.totals = T.alloc_buffer((rows, half), "float32")
        self.shrink = T.alloc_buffer((TILE_ROWS,), "float32")


class RowBytes:
    """Rows as two bytes a number: value = (first + second / 254) * scale."""

    def __init__(self, rows: int, size: int) -> None:
        self.parts = T.alloc_buffer((2, rows, size), "int8")
        self.sums = T.alloc_buffer((2, rows), "int32")
        self.scale = T.alloc_buffer((rows,), "float32")


@dataclass(frozen=True)
class Tile:
    """A tile at run time: int64 expressions."""

    token: Expr
    """First row of q."""
    rows: Expr
    """Query rows: tokens times group."""
    few: Expr
    """Whether it is of a sequence with few tokens, and has at most `FEW` rows if a token has."""
    head: Expr
    """The KV head."""
    position: Expr
    """Position of the first token."""
    first_page: Expr
    """Word of the step that names the page of the sequence's first key."""
    first_key: Expr
    """The first key in a page that any query sees: earlier ones may be in no page."""
    begin: Expr
    """First key to compute, at the beginning of a page, or with `Blocking.aligns_keys` of a
    step."""
    end: Expr
    """One past the last key."""


class Cache:
    """Reads and prefetches the pages, any object that is indexed as `pages[page, keys or values,
    kv_head, offset, at]`; likewise the scales, without `at`."""

    def __init__(self, cut: Blocking, pages: Expr, words: Expr, scales: Expr = None) -> None:
        self.cut, self.pages, self.words, self.scales = cut, pages, words, scales

    def place(self, tile: Tile, key: Expr) -> tuple[Expr, Expr]:
        """(page, offset in it) of a key of the tile's sequence."""
        held = T.max(key, tile.first_key) if self.cut.aligns_keys else key
        index = tile.first_page + T.floordiv(held, self.cut.layout.page_size)
        page = bind(T.Cast("int64", self.words[index]))
        return page, bind(T.floormod(key, self.cut.layout.page_size))

    def visible_until(self, token: Expr) -> Expr:
        """The last position that a token of the step sees."""
        return self._token(token, "visible_until")

    def visible_from(self, token: Expr) -> Expr:
        """The first position that a token of the step sees."""
        return self._token(token, "visible_from")

    def _token(self, token: Expr, column: str) -> Expr:
        step = Step(self.cut.layout.step, self.words)
        return T.Cast("int64", step.token(token, column))

    def load(self, which: int, page: Expr, head: Expr, offset: Expr, at: Expr) -> Expr:
        """Some dimensions of a contiguous key (KEYS) or value (VALUES), as float32, not yet
        scaled."""
        return cast("float32", self.pages[page, which, head, offset, at])

    def load_value(self, page: Expr, head: Expr, offset: Expr, d: Expr, lanes: int) -> Expr:
        """`lanes` dimensions from d on of a value, as float32, not yet scaled."""
        if self.cut.quads:
            return self._of_quads(self.value_quads(page, head, offset, d, lanes), offset)
        return self.load(VALUES, page, head, offset, span(d, lanes))

    def load_column(self, page: Expr, head: Expr, d: Expr, offset: Expr, lanes: int) -> Expr:
        """Dimension d of `lanes` neighbouring keys from `offset` on, as float32, not yet scaled."""
        if self.cut.quads:
            return self._of_quads(self.key_quads(page, head, d, offset, lanes), d)
        at = span(d * self.cut.layout.page_size + offset, lanes)
        return cast("float32", self.pages[page, KEYS, head, 0, at])

    def key_quads(self, page: Expr, head: Expr, d: Expr, offset: Expr, lanes: int) -> Expr:
        """The four dimensions containing d of `lanes` neighbouring keys: bytes."""
        at = T.floordiv(d, QUAD) * self.cut.layout.page_size + offset
        return self.pages[page, KEYS, head, 0, span(at * QUAD, lanes * QUAD)]

    def value_quads(self, page: Expr, head: Expr, offset: Expr, d: Expr, lanes: int) -> Expr:
        """`lanes` dimensions from d on of the four values containing `offset`: bytes."""
        at = T.floordiv(offset, QUAD) * self.cut.shape.head_dim + d
        return self.pages[page, VALUES, head, 0, span(at * QUAD, lanes * QUAD)]

    def _of_quads(self, four: Expr, which: Expr) -> Expr:
        """Element which % 4 of each quad."""
        lanes = lanes_of(four) // QUAD
        words = T.reinterpret(vector("int32", lanes), four)
        left = T.Cast("int32", T.int64(24) - T.floormod(which, QUAD) * 8)
        first = T.shift_left(words, spread(left, lanes))
        return cast("float32", T.shift_right(first, spread(T.int32(24), lanes)))

    def prefetch_line(self, which: int, page: Expr, head: Expr, element: Expr) -> None:
        """Prefetch the line of an element of all keys, or values, of a head's page."""
        T.evaluate(prefetch(T.address_of(self.pages[page, which, head, 0, element]), 2))

    def page_of(self, tile: Tile, key: Expr) -> Expr:
        """The page of a key of the tile; past the end, the last page, where reads are undefined but
        safe."""
        page, _ = self.place(tile, bind(T.min(key, tile.end - 1)))
        return page

    def load_scales(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Load the scales of a block's keys and values into scratch.scales; past the end, of any
        value."""
        lanes = self.cut.key_lanes
        with T.grid(2, T.floordiv(size + lanes - 1, lanes)) as (which, v):
            page, offset = self.place(tile, bind(begin + v * lanes))
            found = self.scales[page, which, tile.head, span(offset, lanes)]
            store(scratch.scales, found, which, span(v * lanes, lanes))

    def touch(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Read a word of every cache line of a block's keys and values.

        A loop that computes has too few loads in flight to hide the latency of each next page; a
        loop of loads alone does. Worth it for float16: 1.3 times as fast from memory.
        """
        cut, size = self.cut, DTYPE_BYTES[self.cut.layout.dtype]
        line = LINE // size
        seen = Registers(1, 1, "int32")
        seen[0] = T.int32(0)
        with T.grid(2, T.floordiv(size + cut.side - 1, cut.side)) as (which, g):
            page, offset = self.place(tile, bind(begin + g * cut.side))
            with T.grid(cut.side, -(-cut.shape.head_dim // line)) as (i, j):
                word = self.pages[page, which, tile.head, offset + i, j * line]
                seen[0] = seen[0] + T.Cast("int32", T.reinterpret(f"int{8 * size}", word))
        # kept, or LLVM would drop the loads
        store(scratch.keys, T.Cast("float32", seen[0]), 0, 0)

    def prefetch(self, tile: Tile, which: int, key: Expr) -> None:
        """Prefetch the first line of each of `side` keys or values from `key` on.

        No hardware predicts the next page; once a row is read it fetches the rest by itself.
        """
        with T.If(key < tile.end), T.Then():
            page, offset = self.place(tile, key)
            with T.serial(self.cut.side) as i:
                address = T.address_of(self.pages[page, which, tile.head, offset + i, 0])
                T.evaluate(prefetch(address))
