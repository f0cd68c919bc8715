"""A tile of many rows whose two products are AMX's: 32 rows by 32 keys, or by 32 dimensions, at a
time.

Scratch is that of `bf16_tile.py`, whose pairs are what tiles of columns are made of: keys are
columns of scores, dimensions are columns of sums. Scores, the softmax and sums are float32. The
last rows of a tile share 32 with rows that do not exist, whose numbers are undefined and never
read. Weights of keys that a row does not see are zero, so values past the block's end are zeroed: a
value that is not finite reaches all rows of a square that has its key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.attention.bf16_tile import LANES, STEP, Bf16Tile, Rows
from mlcc_compiler.kernels.cpu.attention.blocking import TILE_ROWS, Scratch, Tile
from mlcc_compiler.kernels.cpu.isa import amx
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, span, spread
from mlcc_compiler.kernels.frame import Expr, store

_HALF = amx.SIDE // 2


class AmxTile(Bf16Tile):
    """Emits `TileKernel.run` for many rows, by AMX."""

    def run(self, tile: Tile, q: Expr, scratch: Scratch) -> None:
        """Fill scratch.sums, .top and .total."""
        with amx.tiles():
            super().run(tile, q, scratch)

    def instructions(self) -> AbstractContextManager[None]:
        return amx.imported()

    def for_rows(self, tile: Tile, attend: Callable[[Expr, Expr], None]) -> None:
        with T.serial(T.floordiv(tile.rows + (TILE_ROWS - 1), TILE_ROWS)) as i:
            row = bind(i * TILE_ROWS)
            attend(row, bind(T.min(tile.rows - row, TILE_ROWS)))

    def _load_values(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        """Load a block of values; zero those in no page, and up to the end of its last step."""
        super()._load_values(tile, begin, size, scratch)
        if self.cut.aligns_keys:
            unseen = bind(T.floordiv(T.max(tile.first_key - begin, 0), 2))
            with T.grid(unseen, self.cut.shape.head_dim // LANES) as (j, d):
                zero = spread(T.int32(0), LANES)
                store(scratch.pairs.values, zero, j, span(d * LANES, LANES))
        first = bind(T.floordiv(size + 1, 2))
        last = T.floordiv(size + (STEP - 1), STEP) * (STEP // 2)
        with T.grid(last - first, self.cut.shape.head_dim // LANES) as (j, d):
            store(
                scratch.pairs.values, spread(T.int32(0), LANES), first + j, span(d * LANES, LANES)
            )

    def _score_keys(self, rows: Rows, scratch: Scratch) -> None:
        pairs, dim = scratch.pairs, self.cut.shape.head_dim
        pitch = 4 * int(pairs.keys.shape[1])
        with T.serial(rows.steps) as i:
            key = bind(i * STEP)
            amx.zero()
            with T.serial(dim // amx.DEPTH) as d:
                word = bind(d * _HALF)
                queries = [T.address_of(pairs.queries[rows.first + h, word]) for h in (0, _HALF)]
                keys = [T.address_of(pairs.keys[word, key + side]) for side in (0, _HALF)]
                amx.add(queries, 2 * dim, keys, pitch)
            amx.store(T.address_of(pairs.scores[0, key]), pitch)

    def _add_values(self, rows: Rows, scratch: Scratch) -> None:
        pairs, dim = scratch.pairs, self.cut.shape.head_dim
        self._shrink(rows, scratch)
        with T.serial(dim // amx.SIDE) as part:
            column = bind(part * amx.SIDE)
            sums = T.address_of(scratch.sums[rows.first, column])
            amx.load(sums, 4 * dim)
            with T.serial(rows.steps) as i:
                word = bind(i * _HALF)
                weights = [T.address_of(pairs.weights[h, word]) for h in (0, _HALF)]
                values = [T.address_of(pairs.values[word, column + side]) for side in (0, _HALF)]
                amx.add(weights, 4 * int(pairs.weights.shape[1]), values, 4 * dim)
            amx.store(sums, 4 * dim)

    def _shrink(self, rows: Rows, scratch: Scratch) -> None:
        """scratch.sums = sums * shrink."""
        sums = scratch.sums
        with T.serial(rows.count) as r:
            factor, row = spread(scratch.pairs.shrink[r], LANES), rows.first + r
            with T.serial(self.cut.shape.head_dim // LANES) as d:
                at = span(d * LANES, LANES)
                store(sums, sums[row, at] * factor, row, at)
