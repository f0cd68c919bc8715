"""Attention of several query tokens by `mma.m16n8k16`, over pages: FlashAttention (Dao, 2023).

The tiles are those of `matrix_prefill.py`, whose loads are used. A warp has 16 query rows
(`flash_rows.py`), all keys of a block and all of head_dim. Keys are read once.

Pages of float16 are copied by `cp.async`: a block's values while its scores are multiplied, the
next block's keys from then on, so that neither takes more workgroup memory than without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.flash_rows import (
    LANES,
    ROWS,
    STRETCH,
    Cells,
    FlashRows,
    stride,
)
from mlcc_compiler.kernels.gpu.attention.matrix_prefill import MatrixPlan, MatrixTile
from mlcc_compiler.kernels.gpu.attention.query_tile import QueryTile
from mlcc_compiler.kernels.gpu.attention.rows import Rows
from mlcc_compiler.kernels.gpu.attention.sequences import (
    VECTOR,
    PagedSequences,
    heads_together,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.attention.tiles import each_tile
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma
from mlcc_compiler.kernels.gpu.linear.matrix_unit import UNITS
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    int32,
    shared,
    when,
)

_KEYS = 64
_WARPS = 4
_COPIERS = 8
"""Threads that copy a key together, so that they read 128 bytes at once."""
_PIECE = 8
"""Columns that a thread copies at once: 16 bytes."""
_KEYS_AT_ONCE = _WARPS * LANES // _COPIERS


def plan_of(gpu: Gpu, shape: AttentionShape) -> MatrixPlan | None:
    """The tile; None if it does not fit, or the device has no such instructions."""
    if not (gpu.fragments and gpu.f16 and gpu.matrix_unit) or shape.head_dim % VECTOR:
        return None
    dim, rows = ceil_div(shape.head_dim, STRETCH) * STRETCH, _WARPS * ROWS
    if 2 * 2 * _KEYS * stride(dim) + 4 * _KEYS > gpu.shared_bytes:
        return None
    heads = heads_together(shape, rows)[0]
    return MatrixPlan(_WARPS * LANES, heads, rows, _KEYS, dim, _WARPS, 1, ROWS)


def mma_prefill(
    gpu: Gpu,
    plan: MatrixPlan,
    sequences: PagedSequences,
    most: Expr,
    q: Expr,
    pages: Sequence[Expr],
    out: Expr,
    sinks: Expr | None = None,
) -> None:
    """Emit the launch: see `matrix_prefill`."""
    shape = sequences.shape
    splits = shape.group // plan.heads

    def run(sequence: Any, start: Expr, count: Expr, part: Expr, thread: Expr) -> None:
        head = bind(part * plan.heads)
        queries = QueryTile(sequences, sequence, start, count, plan.heads)
        tile = _Tile(gpu, plan, queries, thread)
        tile.go(q, Rows(gpu, sequences.layout, *pages), part // splits, head)
        tile.rows.write(out, head, sinks=sinks)

    each_tile(sequences, plan, shape.kv_heads * splits, most, out, run)


class _Tile(MatrixTile):
    """Emits the work of one workgroup."""

    def __init__(self, gpu: Gpu, plan: MatrixPlan, queries: QueryTile, thread: Expr) -> None:
        self.plan, self.tile, self.shape, self.thread = plan, queries, queries.shape, thread
        self.unit = UNITS[gpu.matrix_unit]
        warp = bind(thread // LANES)
        self.rows = FlashRows(queries, thread, warp, plan.keys, plan.dim, plan.dim)
        self.block, self.values = (
            shared((plan.keys, stride(plan.dim)), "float16") for _ in range(2)
        )
        self.places = shared((plan.keys,), "int32")

    def go(self, q: Expr, pages: Rows, kv_head: Expr, head: Expr) -> None:
        """Go through the blocks of keys."""
        head_dim = self.shape.head_dim
        self.rows.load(q, head, 0, head_dim if head_dim < self.plan.dim else None)
        if pages.is_float16 and head_dim % _PIECE == 0:
            self._go_copying(pages, kv_head)
        else:
            self._go_loading(pages, kv_head)

    def _go_loading(self, pages: Rows, kv_head: Expr) -> None:
        """Each block is converted on its way to workgroup memory, before its products."""
        plan, first = self.plan, self.tile.first_key()
        with T.serial(ceil_div(self.tile.end - first, plan.keys)) as number:
            begin = bind(first + int32(number) * plan.keys)
            self.tile.locate(self.places, begin, kv_head, plan.threads, self.thread)
            barrier()
            self._load_block(pages, 0)
            self._load_block(pages, pages.to_value, self.values)
            barrier()
            weights = self.rows.weights(self.rows.scores(Cells.of(self.block, plan.dim)), begin)
            self.rows.add_values(weights, Cells.of(self.values, plan.dim))
            barrier()

    def _go_copying(self, pages: Rows, kv_head: Expr) -> None:
        """Keys and values are copied while other products are under way."""
        plan, end = self.plan, self.tile.end
        if self.shape.head_dim < plan.dim:
            self._clear_padding()
        begin, rows = Local(1, "int32"), Local(plan.keys // _KEYS_AT_ONCE, "int32")
        begin[0] = self.tile.first_key()
        self._find(rows, begin[0], kv_head)
        self._copy(pages, rows, 0, self.block)
        with T.While(begin[0] < end):
            async_copy.wait(0)
            barrier()
            self._copy(pages, rows, pages.to_value, self.values)
            first, begin[0] = bind(begin[0]), begin[0] + plan.keys
            self._find(rows, begin[0], kv_head)
            scores = self.rows.scores(Cells.of(self.block, plan.dim))
            barrier()
            with when(begin[0] < end):
                self._copy(pages, rows, 0, self.block, commits=False)
            async_copy.commit()
            weights = self.rows.weights(scores, first)
            async_copy.wait(1)
            barrier()
            self.rows.add_values(weights, Cells.of(self.values, plan.dim))

    def _clear_padding(self) -> None:
        """Zeros behind head_dim, which no copy writes."""
        width = self.plan.dim - self.shape.head_dim

        def clear(i: Expr) -> None:
            row, column = split(i, width)
            for target in (self.block, self.values):
                store(target, T.float16(0), row, column + self.shape.head_dim)

        strided(self.plan.keys * width, self.plan.threads, self.thread, clear)

    def _find(self, rows: Local, begin: Expr, kv_head: Expr) -> None:
        """The rows in the pages of the keys that this thread copies of the block from `begin` on;
        past the end, the last key's."""
        tile, first = self.tile, split(mma.kept(self.thread), _COPIERS)[0]
        for i in range(self.plan.keys // _KEYS_AT_ONCE):
            key = bind(T.min(begin + first + (i * _KEYS_AT_ONCE + 1), tile.end) - 1)
            rows[i] = tile.sequences.key_row(tile.sequence, key, kv_head)

    def _copy(
        self, pages: Rows, rows: Local, further: Expr | int, target: Any, commits: bool = True
    ) -> None:
        """Start this thread's copies of a block of keys or, `further` rows on, values."""
        head_dim, step = self.shape.head_dim, _COPIERS * _PIECE
        key, number = split(mma.kept(self.thread), _COPIERS)
        piece, to = bind(number * _PIECE), Cells.of(target, self.plan.dim)
        for i in range(self.plan.keys // _KEYS_AT_ONCE):
            place, row = to.at(key + i * _KEYS_AT_ONCE, piece), bind(rows[i] + further)
            for first in range(0, head_dim, step):
                whole = first + step <= head_dim
                with contextlib.nullcontext() if whole else when(piece + first < head_dim):
                    cell = pages.cell(row, piece + first)
                    async_copy.copy(place + T.uint32(2 * first), cell, 2 * _PIECE)
        if commits:
            async_copy.commit()
