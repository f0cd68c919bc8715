"""Scores of a tile whose pages store keys in columns: dimension after dimension, with keys as
lanes.

A register tile multiplies each number of a query with a vector of keys: no sum over lanes is
needed. Few rows (decode) read the pages directly and prefetch the next ones while computing; for
many rows (prefill) a block of keys is converted once into scratch.
"""

from __future__ import annotations

from mlcc.artifact.schema import DTYPE_BYTES
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.attention.blocking import (
    KEYS,
    LINE,
    VALUES,
    Scratch,
    Tile,
)
from mlcc_compiler.kernels.cpu.attention.scores import Scores
from mlcc_compiler.kernels.cpu.isa.register_tile import Step, product, row_tiles, tile_shape
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, fit_lanes, span, spread
from mlcc_compiler.kernels.frame import Expr, store

_FIRST_KEYS = 64  # asked for when a task begins


class ColumnScores(Scores):
    """`Scores` of pages with `key_columns`."""

    def few(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        cut = self.cut
        fit = tile_shape(cut.key_lanes, cut.lanes)
        step = cut.key_lanes * fit.vectors
        with T.serial(T.floordiv(size + step - 1, step)) as i:
            first = bind(i * step)

            def body(row: Expr, rows: int) -> None:
                self._score(tile, begin, first, row, rows, scratch)

            row_tiles(tile.rows, fit.rows, cut.shape.group, body)

    def start(self, tile: Tile, scratch: Scratch) -> None:
        """Prefetch what a task reads first: keys and values of some pages."""
        cut, size = self.cut, self.cut.layout.page_size
        line = LINE // DTYPE_BYTES[cut.layout.dtype]
        lines = -(-size * cut.shape.head_dim // line)
        with T.If(tile.begin < tile.end), T.Then():
            for which in (KEYS, VALUES):
                with T.serial(-(-_FIRST_KEYS // size)) as i:
                    page = self.cache.page_of(tile, bind(tile.begin + i * size))
                    with T.serial(lines) as j:
                        self.cache.prefetch_line(which, page, tile.head, j * line)

    def _score(
        self, tile: Tile, begin: Expr, first: Expr, row: Expr, rows: int, scratch: Scratch
    ) -> None:
        """A register tile of scores: `rows` from row, by the keys from begin + first on."""
        cut, cache = self.cut, self.cache
        lanes, size = cut.key_lanes, cut.layout.page_size
        vectors = tile_shape(lanes, cut.lanes).vectors
        step = lanes * vectors
        places = [bind(begin + first + v * lanes) for v in range(vectors)]
        pages = [cache.page_of(tile, key) for key in places]
        offsets = [bind(T.floormod(key, size)) for key in places]
        # each page of the next tile of keys
        ahead = [cache.page_of(tile, bind(begin + first + step + k)) for k in range(0, step, size)]
        line = LINE // DTYPE_BYTES[cut.layout.dtype]
        together = fit_lanes(cut.shape.head_dim, max(1, line // size))  # dimensions of one line

        def walk(step: Step) -> None:
            with T.serial(cut.shape.head_dim // together) as j:
                start = bind(T.Cast("int64", j * together))
                for page in ahead:
                    for element in range(0, size, line):
                        cache.prefetch_line(KEYS, page, tile.head, start * size + element)
                for k in range(together):
                    step(
                        lambda r, k=k: scratch.queries[row + r, start + k],
                        lambda v, k=k: cache.load_column(
                            pages[v], tile.head, start + k, offsets[v], lanes
                        ),
                    )

        product(
            rows,
            vectors,
            lanes,
            walk,
            lambda r, v: spread(0.0, lanes),
            lambda r, v, total: store(
                scratch.scores, total, row + r, span(first + v * lanes, lanes)
            ),
        )

    def load_keys(self, tile: Tile, begin: Expr, size: Expr, scratch: Scratch) -> None:
        cut, lanes = self.cut, self.cut.key_lanes
        with T.serial(T.floordiv(size + lanes - 1, lanes)) as g:
            key = bind(begin + g * lanes)
            page, offset = self.cache.place(tile, key)
            with T.serial(cut.shape.head_dim) as d:
                found = self.cache.load_column(page, tile.head, d, offset, lanes)
                store(scratch.keys, found, d, span(g * lanes, lanes))
