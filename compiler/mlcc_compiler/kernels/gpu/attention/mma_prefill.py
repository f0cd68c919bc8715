"""Attention of several query tokens by `mma.m16n8k16`, over pages: FlashAttention (Dao, 2023).

The tiles are those of `matrix_prefill.py`, whose loads are used. A warp has 16 query rows
(`flash_rows.py`), all keys of a block and all of head_dim. Keys are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.frame import Expr
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
)
from mlcc_compiler.kernels.gpu.attention.tiles import each_tile
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.matrix_unit import UNITS
from mlcc_compiler.kernels.gpu.workgroup import barrier, bind, ceil_div, int32, shared

_KEYS = 64
_WARPS = 4


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
        plan, head_dim = self.plan, self.shape.head_dim
        self.rows.load(q, head, 0, head_dim if head_dim < plan.dim else None)
        first = self.tile.first_key()
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
