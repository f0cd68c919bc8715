"""What the parts of the attention kernel share: its constants, the tile at hand, the paged cache.

No arithmetic: scores are in `attention_scores.py`, the online softmax in `attention_tile.py`, the
cutting of a batch into tiles in `attention.py`.
"""

from dataclasses import dataclass

from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.cpu.vector_math import Registers, bind, cast, fit_lanes, prefetch
from mlcc_compiler.kernels.frame import Expr, store

_BLOCK = 64  # keys per block, unless a page holds more
_ROWS = 64  # query rows per tile: tokens times heads of a group
_LINE = 32  # float16 numbers in a cache line
KEYS, VALUES = 0, 1


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

    @property
    def side(self) -> int:
        """Neighbouring keys that are scored together; they lie in one page."""
        return min(self.key_lanes, self.dim_lanes)


class Scratch:
    """What a task needs: 64 KiB at head_dim 64, 112 at 128, 136 at 256. Fits a core's own cache."""

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


class Cache:
    """Reads and prefetches the pages."""

    def __init__(self, shape: AttentionShape, pages: Expr, page_indices: Expr) -> None:
        self.shape, self.pages, self.page_indices = shape, pages, page_indices

    def place(self, tile: Tile, key: Expr) -> tuple[Expr, Expr]:
        """(page, offset in it) of a key of the tile's sequence."""
        index = tile.first_page + T.floordiv(key, self.shape.page_size)
        page = bind(T.Cast("int64", self.page_indices[index]))
        return page, bind(T.floormod(key, self.shape.page_size))

    def load(self, which: int, page: Expr, head: Expr, offset: Expr, at: Expr) -> Expr:
        """Some dimensions of a key (KEYS) or value (VALUES), as float32."""
        return cast("float32", self.pages[page, which, head, offset, at])

    def touch(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Read a word of every cache line of a block's keys and values.

        A loop that computes runs too few loads ahead to hide the latency of each next page; a loop
        of loads alone does. Worth it for float16: 1.3 times as fast from memory.
        """
        shape = self.shape
        seen = Registers(1, 1, "int32")
        seen[0] = T.int32(0)
        with T.grid(2, T.floordiv(size + shape.side - 1, shape.side)) as (which, g):
            page, offset = self.place(tile, bind(begin + g * shape.side))
            with T.grid(shape.side, -(-shape.head_dim // _LINE)) as (i, j):
                word = self.pages[page, which, tile.head, offset + i, j * _LINE]
                seen[0] = seen[0] + T.Cast("int32", T.reinterpret("int16", word))
        # kept, or LLVM would drop the loads
        store(scratch.keys, T.Cast("float32", seen[0]), 0, 0)

    def prefetch(self, tile: Tile, which: int, key: Expr) -> None:
        """Ask for the first line of each of `side` keys or values from `key` on.

        No hardware foresees the next page; once a row is read it fetches the rest by itself.
        """
        with T.If(key < tile.end), T.Then():
            page, offset = self.place(tile, key)
            with T.serial(self.shape.side) as i:
                address = T.address_of(self.pages[page, which, tile.head, offset + i, 0])
                T.evaluate(prefetch(address))
