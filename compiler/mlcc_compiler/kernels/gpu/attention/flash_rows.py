"""FlashAttention (Dao, 2023) of a warp's 16 query rows in registers, by `mma.m16n8k16`.

Where a lane's sums lie is known: so scores become weights in registers, which are the left side of
the product with values, and sums are scaled when a larger score appears.

A lane reads eight neighbours of a key, columns of two products, as `linear/fragments/order.py`
orders them; values are transposed on their way to registers. Both take the same rows in workgroup
memory, `stride` apart: the eight keys of a product are taken in the order 0 4 1 5 2 6 3 7, so that
two rows which are read at once are half of all banks apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.query_tile import QueryTile
from mlcc_compiler.kernels.gpu.attention.sequences import (
    LOWEST,
    VECTOR,
    apply_softcap,
    load_vector,
    sink_weight,
    split,
)
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, real, when, zeros

LANES = 32
ROWS = 16
"""Query rows of a warp."""
STRETCH = 32
"""Columns of a key that four lanes read at once."""
_UNIT, _SUMS = 8, 4
_ALL_LANES = 0xFFFFFFFF
_LOG2_E = 1.4426950408889634


def stride(columns: int) -> int:
    """float16 cells from row to row of keys or values, so that eight rows of 16 bytes are all
    banks, and so are two halves of 64 bytes, four rows apart."""
    words = columns // 2
    return 2 * (words + (4 - words) % 32)


def key_of(i: Expr) -> Expr:
    """The key of a block's first eight that is number i of a product."""
    return i // 2 + i % 2 * 4


class Cells:
    """Addresses of the rows of a block, float16 in workgroup memory."""

    def __init__(self, first: Expr, columns: int) -> None:
        self.first, self.stride = first, stride(columns)

    @classmethod
    def of(cls, buffer: Any, columns: int) -> Cells:
        """The rows of a buffer."""
        return cls(bind(async_copy.address(buffer[0, 0])), columns)

    def at(self, row: Expr, column: Expr) -> Expr:
        """Of a cell."""
        return bind(self.first + ((row * self.stride + column) * 2).astype("uint32"))


class FlashRows:
    """Emits the work of one warp on its rows of a tile.

    warp: its 16 rows. keys: of a block. depth: columns of queries and keys that the warp
    multiplies, whole stretches. width: columns of values, whole 16.
    """

    def __init__(
        self, tile: QueryTile, thread: Expr, warp: Expr, keys: int, depth: int, width: int
    ) -> None:
        self.tile, self.shape = tile, tile.shape
        self.keys, self.depth, self.width = keys, depth, width
        self.lane = bind(thread % LANES)
        self.g, self.t = bind(self.lane // 4), bind(self.lane % 4)
        self.row = bind(warp * ROWS + self.g)
        self.key = bind(key_of(self.g))
        self.value = bind(key_of(self.lane % _UNIT) + self.lane % 16 // _UNIT * _UNIT)
        self.queries = Local(depth // 4, "uint32")
        self.best, self.total = zeros(2, LOWEST), zeros(2)
        self.count = width // _UNIT * _SUMS
        self.sums = zeros(self.count)
        one_token = tile.heads % ROWS == 0
        rows = [self.row] if one_token else [self.row, bind(self.row + 8)]
        self.bounds = [tile.bounds(row) for row in rows] * (3 - len(rows))

    def load(self, q: Expr, head: Expr, first: Expr | int, columns: int | None = None) -> None:
        """Load the queries' columns from `first` on; those from column `columns` on are zeros. Rows
        behind the tile's last are as the last."""
        for half in range(2):
            last = self.tile.count * self.tile.heads - 1
            token, h = split(bind(T.min(self.row + 8 * half, last)), self.tile.heads)
            at = bind(self.tile.token + token), bind(head + h)
            for s in range(self.depth // STRETCH):
                for x in range(_UNIT // VECTOR):
                    d = bind(first + (self.t * _UNIT + (s * STRETCH + x * VECTOR)))
                    cells = self._vector(q, at, d, columns)
                    word = s * 8 + x * 4 + half
                    self.queries[word] = mma.halves(cells[0], cells[1])
                    self.queries[word + 2] = mma.halves(cells[2], cells[3])

    def _vector(self, q: Expr, at: tuple[Expr, Expr], d: Expr, columns: int | None) -> Local:
        """VECTOR columns of a query, scaled."""
        cells = zeros(VECTOR)
        with contextlib.nullcontext() if columns is None else when(d < columns):
            found = load_vector(q, *at, d // VECTOR)
            for x in range(VECTOR):
                cells[x] = found[x] * real(self.shape.scale)
        return cells

    def scores(self, block: Cells, first: Expr | int = 0) -> Local:
        """Scores of the block's keys by the queries' columns; `first`: of the first one. Of tile i
        of 8 keys four cells: of rows g, g, g + 8, g + 8."""
        tiles = self.keys // _UNIT
        scores = zeros(tiles * _SUMS)
        for s in range(self.depth // STRETCH):
            for j in range(tiles):
                at = block.at(self.key + j * _UNIT, first + (self.t * _UNIT + s * STRETCH))
                keys = async_copy.load(at, 4)
                cells = [scores[j * _SUMS + i] for i in range(_SUMS)]
                for side in range(2):
                    a = [self.queries[s * 8 + side * 4 + i] for i in range(4)]
                    mma.multiply(cells, cells, a, keys[2 * side : 2 * side + 2])
        return scores

    def weights(self, scores: Local, begin: Expr) -> list[list[Expr]]:
        """Scores of keys from `begin` on as pairs of weights, by tile of 8 keys: of row g and of
        g + 8. Scales what was summed before."""
        count = self.keys // _UNIT * _SUMS
        tops = zeros(2, LOWEST)
        for i in range(count):
            half, key = i % _SUMS // 2, begin + self.t + (i // _SUMS * _UNIT + i % 2 * 4)
            score = apply_softcap(self.shape, scores[i])
            seen = self.tile.sees(self.bounds[half], self.tile.key(bind(key)))
            scores[i] = T.if_then_else(seen, score, real(LOWEST))
            tops[half] = T.max(tops[half], scores[i])
        for half in range(2):
            self._scale(half, tops[half])
        pairs = Local(count // 2, "uint32")
        for i in range(count // 2):
            half = i % 2
            two = [bind(_weight(scores[2 * i + x], self.best[half])) for x in range(2)]
            self.total[half] = self.total[half] + (two[0] + two[1])
            pairs[i] = mma.halves(*two)
        return [[pairs[2 * j], pairs[2 * j + 1]] for j in range(self.keys // _UNIT)]

    def _scale(self, half: int, top: Expr) -> None:
        """Scale the sums of a row for a lane's largest new score."""
        top = bind(T.max(self.best[half], self._over_lanes(top, T.max)))
        factor = bind(_weight(self.best[half], top))
        self.best[half] = top
        self.total[half] = self.total[half] * factor
        for i in range(half * 2, self.count, _SUMS):
            self.sums[i] = self.sums[i] * factor
            self.sums[i + 1] = self.sums[i + 1] * factor

    def _over_lanes(self, value: Expr, combine: Any) -> Expr:
        """Combined over the four lanes of a row."""
        cell = Local(1)
        cell[0] = value
        for bit in (1, 2):
            other = T.tvm_warp_shuffle_xor(T.uint32(_ALL_LANES), cell[0], bit, LANES, LANES)
            cell[0] = combine(cell[0], bind(other))
        return cell[0]

    def add_values(
        self, weights: Sequence[Sequence[Expr]], values: Cells, first: Expr | int = 0
    ) -> None:
        """sums += weights times the block's values, columns from `first` on."""
        for k in range(self.keys // 16):
            a = [*weights[2 * k], *weights[2 * k + 1]]
            for d in range(self.width // 16):
                column = first + (self.lane // 16 * _UNIT + d * 16)
                b = async_copy.transposed(values.at(self.value + k * 16, column))
                for j in range(2):
                    at = (2 * d + j) * _SUMS
                    cells = [self.sums[at + i] for i in range(_SUMS)]
                    mma.multiply(cells, cells, a, b[2 * j : 2 * j + 2])

    def write(
        self,
        out: Expr,
        head: Expr,
        first: Expr | int = 0,
        sinks: Expr | None = None,
    ) -> None:
        """out = sums / the sum of the weights, columns from `first` on."""
        columns, tile = self.shape.head_dim, self.tile
        end, to_token = bind(tile.position + tile.count), bind(tile.token - tile.position)
        for half in range(2):
            position, h = self.bounds[half].position, split(self.row + 8 * half, tile.heads)[1]
            total = Local()
            total[0] = self._over_lanes(self.total[half], lambda a, b: a + b)
            with when(position < end):
                if sinks is not None:
                    more = sink_weight(bind(sinks[head + h]), self.best[half])
                    total[0] = total[0] + more
                factor = bind(real(1) / total[0])
                for i in range(half * 2, self.count, _SUMS):
                    for x in range(2):
                        d = bind(first + (self.t * 2 + (i // _SUMS * _UNIT + x)))
                        with when(d < columns):
                            value = self.sums[i + x] * factor
                            store(out, value, to_token + position, head + h, d)


def _weight(score: Expr, top: Expr) -> Expr:
    """e ** (score - top); 1 where both are the lowest."""
    return mma.power((score - top) * real(_LOG2_E))
