"""What the threads of a linear kernel run:

    for each block of rows and each tile of columns, in parallel:   rows fit L2, columns fit L1
        for each tile of `r` rows of the block, and each strip of the tile of columns:
            r x 2 vectors in registers, all of K; of one row up to 4

Rows that do not fill the last register tile are computed twice, with the tile moved up: the same
numbers again, and no code for every remainder.

Rows come first: a thread multiplies some rows with all columns, as far as there are blocks for
threads. What makes those rows and what reads them has the same rows of that thread, so they stay in
its core's caches; cores of one machine may read each other's three times slower than their own.

Rows and tiles are in every index of a kernel's body, so they are bound by `bind`, not `B.bind`:
TVM's simplifier would replace each by what it was computed from, which took a third of a compile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels.cpu.isa.vector_math import bind

Expr = Any
"""A TVM expression; TVM ships no types for them."""

_L2_BYTES = 384 * 1024
"""Share of a core's second-level cache for a block of activation rows."""

MANY = 24
"""Rows from which on a weight's tile is unpacked."""

_MANY_BYTES = 1024 * 1024
"""`_L2_BYTES` for blocks that unpack tiles, which then are read most often."""

_MOST = 256
"""Largest number of rows of such a block: unpacking is a hundredth of their work."""

_APART = 96
"""Rows up to which threads split tiles, not rows: a tile read by two threads costs twice."""

_SHARES, _MUCH = 240, 128
"""Number of shares for less work than `_MUCH`, of many rows: divisible by most numbers of threads.
Of 36 pieces TVM would give two threads 20 and 16. With few rows the work is done before shares
matter.
"""

TileBody = Callable[[int, Expr, Expr], None]
"""(rows, row, tile): emits one register tile."""

RowsOfTile = Callable[[Expr, Expr, Expr], None]
"""(begin, end, tile): emits rows of a tile."""


@dataclass(frozen=True)
class TiledWeight:
    """A weight's tiles, and the emitters of rows of them."""

    tiles: int
    few: RowsOfTile
    many: RowsOfTile | None = None
    """For `MANY` rows and more; None: as few."""


def for_each_tile(
    weights: Sequence[TiledWeight],
    n: Expr,
    row_bytes: int,
    largest: int,
    get_ready: Callable[[], None] = lambda: None,
) -> None:
    """Emit the loops over the tiles of all weights.

    `n` is the symbolic number of rows, `row_bytes` the size of one row of activations, `largest`
    the height of the largest register tile. `get_ready` emits what `many` needs for all rows.
    """

    def block(size: int, least: int) -> int:
        return max(size // row_bytes // largest, -(-least // largest)) * largest

    def few_rows() -> None:
        most = block(_L2_BYTES, 2 * largest)
        few = [weight.few for weight in weights]
        _tasks(weights, n, _blocks(n, most), largest, few, False)

    many = [weight.many for weight in weights if weight.many is not None]
    if len(many) < len(weights):
        few_rows()
        return
    with B.If(n < MANY):
        with B.Then():
            few_rows()
        with B.Else():
            get_ready()
            most = min(block(_MANY_BYTES, 4 * MANY), -(-_MOST // largest) * largest)
            _tasks(weights, n, _blocks(n, most), largest, many, True)


def _blocks(n: Expr, most: int) -> Expr:
    """Number of blocks of at most `most` rows; even for many rows, so that each half of the threads
    has its own."""
    pairs = (n + (2 * most - 1)) // (2 * most)
    return T.Select(n <= max(most // 2, _APART), (n + (most - 1)) // most, 2 * pairs)


def _tasks(
    weights: Sequence[TiledWeight],
    n: Expr,
    blocks: Expr,
    largest: int,
    emit: Sequence[RowsOfTile],
    many: bool,
) -> None:
    """A task is a block of rows times a tile of one of the weights."""
    tiles = sum(weight.tiles for weight in weights)
    blocks = B.bind(blocks)
    # Rows per block: equal shares in whole register tiles. Of no rows there is no block, and
    # the division still has to be one.
    each = B.bind(T.max(blocks, 1) * largest)
    share = B.bind((n + (each - 1)) // each * largest)
    work = B.bind(blocks * tiles)

    def one(index: Expr) -> None:
        begin = bind(index // tiles * share)
        end = bind(T.min(begin + share, n))
        of_tile(weights, bind(index % tiles), lambda weight, own: emit[weight](begin, end, own))

    if not many:
        with B.parallel(work) as index:
            one(index)
        return
    little = B.bind(work < _MUCH)
    with B.parallel(T.Select(little, T.int64(_SHARES), work)) as part:
        first = bind(T.Select(little, part * work // _SHARES, part))
        last = bind(T.Select(little, (part + 1) * work // _SHARES, part + 1))
        with B.serial(last - first) as i:
            one(bind(first + i))


def of_tile(weights: Sequence[TiledWeight], tile: Expr, emit: Callable[[int, Expr], None]) -> None:
    """Emit the work of the weight that contains a tile, of the tiles of all weights: emit(its
    number, its tile)."""

    def cover(weight: int, first: int) -> None:
        own = bind(tile - first) if first else tile
        if weight + 1 == len(weights):
            emit(weight, own)
            return
        with B.If(tile < first + weights[weight].tiles):
            with B.Then():
                emit(weight, own)
            with B.Else():
                cover(weight + 1, first + weights[weight].tiles)

    cover(0, 0)


def cover_rows(
    sizes: tuple[int, ...], n: Expr, begin: Expr, end: Expr, body: Callable[[int, Expr], None]
) -> None:
    """Cover rows begin..end by tiles of the height that n, the number of all, takes."""

    def cover(rows: int) -> None:
        with B.serial((end - begin + (rows - 1)) // rows) as i:
            body(rows, bind(T.min(begin + i * rows, n - rows)))

    def choose(sizes_left: tuple[int, ...]) -> None:
        rows, *smaller = sizes_left
        if not smaller:
            cover(rows)
            return
        with B.If(_takes(sizes, rows, n)):
            with B.Then():
                cover(rows)
            with B.Else():
                choose(tuple(smaller))

    choose(sizes)


def rows_of_tile(body: TileBody, sizes: tuple[int, ...], n: Expr) -> RowsOfTile:
    """Emits rows of a tile by register tiles of these heights."""

    def emit(begin: Expr, end: Expr, tile: Expr) -> None:
        cover_rows(sizes, n, begin, end, lambda rows, row: body(rows, row, tile))

    return emit


def tile_size(sizes: tuple[int, ...], n: int) -> int:
    """Which of some heights of tiles, largest first, covers n rows: few rows by the fewest readings
    of the weight, each of which after the first lets memory wait, and then by the least work. So
    5 rows are two tiles of 3, 8 are two of 4."""
    if n >= 2 * sizes[0]:
        return sizes[0]
    fitting = [rows for rows in sizes if rows <= n]
    return min(fitting, key=lambda rows: (-(-n // rows), rows))


def _takes(sizes: tuple[int, ...], rows: int, n: Expr) -> Expr:
    """Whether n rows take tiles of this height."""
    every = 2 * sizes[0]
    conditions = [n == few for few in range(1, every) if tile_size(sizes, few) == rows]
    if rows == sizes[0]:
        conditions.append(n >= every)
    return reduce(T.Or, conditions)
