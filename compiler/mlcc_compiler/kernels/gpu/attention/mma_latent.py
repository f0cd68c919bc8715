"""Latent attention of several query tokens by `mma.m16n8k16`, absorbed form: FlashAttention (Dao,
2023) over pages of latents.

A latent is the key of all heads, and its first `rank` numbers are the value: so the rows of a tile
are tokens and heads, and a block of keys is in workgroup memory once, the next one on its way
there (`cp.async`). Two warps share 16 query rows (`flash_rows.py`): each multiplies half of the
columns of queries, which stay in registers, and of keys; both add up the scores of the two, and
each has half of the columns of the values.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.mla import MlaLayout
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.flash_rows import (
    LANES,
    ROWS,
    STRETCH,
    Cells,
    FlashRows,
    stride,
)
from mlcc_compiler.kernels.gpu.attention.latent_tile import heads_of
from mlcc_compiler.kernels.gpu.attention.matrix_prefill import MatrixPlan
from mlcc_compiler.kernels.gpu.attention.query_tile import QueryTile
from mlcc_compiler.kernels.gpu.attention.sequences import (
    PagedSequence,
    PagedSequences,
    load_vector,
    split,
)
from mlcc_compiler.kernels.gpu.attention.tiles import each_tile
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    shared,
    when,
)

_KEYS = 32
_HIGH, _WIDE = 4, 2
"""Warps over the rows, and over the columns."""
_STAGES = 2
_PIECE = 8
"""float16 numbers of a copy, 16 bytes."""
_COPIERS = _HIGH * _WIDE * LANES // _KEYS
"""Threads that copy a key."""
_MOST_REGISTERS = 200
"""Of a thread's 255: for queries and sums."""


def plan_of(gpu: Gpu, layout: MlaLayout) -> MatrixPlan | None:
    """The tile; None if it does not fit, or the device has no such instructions; not for pages of
    float32, which are exact."""
    shape, threads = layout.shape, _HIGH * _WIDE * LANES
    if not (gpu.fragments and gpu.f16 and gpu.matrix_unit) or layout.dtype != "float16":
        return None
    if shape.width % _PIECE or shape.rank % (_WIDE * 16) or gpu.threads < threads:
        return None
    depth = _WIDE * STRETCH
    dim = ceil_div(shape.width, depth) * depth
    scores = 4 * threads * _KEYS // 2
    fits = _STAGES * _stage_bytes(dim) + scores <= async_copy.MOST_BYTES
    if not fits or (dim // 4 + shape.rank // 2) // _WIDE > _MOST_REGISTERS:
        return None
    rows = _HIGH * ROWS
    return MatrixPlan(threads, heads_of(shape, rows), rows, _KEYS, dim, _HIGH, _WIDE, ROWS)


def _stage_bytes(dim: int) -> int:
    """Of a block of keys."""
    return 2 * _KEYS * stride(dim)


def mma_latent(
    plan: MatrixPlan,
    layout: MlaLayout,
    sequences: PagedSequences,
    q: Expr,
    pages: Expr,
    most: Expr,
    out: Expr,
) -> None:
    """Emit the launch that fills out's rows of sequences with several tokens (`each_tile`)."""

    def run(sequence: PagedSequence, start: Expr, count: Expr, part: Expr, thread: Expr) -> None:
        head = bind(part * plan.heads)
        queries = QueryTile(sequences, sequence, start, count, plan.heads)
        _Tile(plan, layout, queries, thread).run(q, pages, out, head)

    each_tile(sequences, plan, layout.shape.heads // plan.heads, most, out, run)


class _Tile:
    """Emits the work of one workgroup."""

    def __init__(
        self, plan: MatrixPlan, layout: MlaLayout, queries: QueryTile, thread: Expr
    ) -> None:
        self.plan, self.layout, self.tile = plan, layout, queries
        self.thread, warp = thread, bind(thread // LANES)
        self.side = bind(warp // _HIGH)
        self.depth, self.width = plan.dim // _WIDE, layout.shape.rank // _WIDE
        self.rows = FlashRows(queries, thread, warp % _HIGH, plan.keys, self.depth, self.width)
        self.parts = shared((_WIDE * _HIGH, plan.keys // 8, LANES, 4))
        """Scores of each warp's columns."""
        self.memory = async_copy.memory(_STAGES * _stage_bytes(plan.dim), 16)

    def run(self, q: Expr, pages: Expr, out: Expr, head: Expr) -> None:
        """Go through the blocks of keys."""
        keys, end = self.plan.keys, self.tile.end
        latents = self._latents(pages)
        row, begin = Local(1, "int32"), Local(1, "int32")
        row[0], begin[0] = self._row(T.int32(0)), T.int32(0)
        self._copy(latents, row[0], begin[0])
        row[0] = self._row(T.int32(keys))
        self.rows.load(q, head, bind(self.side * self.depth), self._columns)
        with T.While(begin[0] < end):
            async_copy.wait(0)
            barrier()
            first, begin[0] = bind(begin[0]), begin[0] + keys
            with when(begin[0] < end):
                self._copy(latents, row[0], begin[0])
                row[0] = self._row(begin[0] + keys)
            cells = Cells(bind(self.memory + self._stage(first)), self.plan.dim)
            scores = self.rows.scores(cells, bind(self.side * self.depth))
            weights = self.rows.weights(self._added(scores), first)
            self.rows.add_values(weights, cells, bind(self.side * self.width))
        self.rows.write(out, head, bind(self.side * self.width))

    @property
    def _columns(self) -> int | None:
        """Of a query, if not all that are multiplied."""
        width = self.layout.shape.width
        return width if width < self.plan.dim else None

    def _latents(self, pages: Expr) -> Expr:
        """The pages as rows of latents."""
        count = pages.shape[0] * self.layout.page_size
        return T.decl_buffer((count, self.layout.shape.width), "float16", data=pages.data)

    def _row(self, begin: Expr) -> Expr:
        """The row of the key that this thread copies of a block; past the end, the last key's."""
        key = split(mma.kept(self.thread), _COPIERS)[0]
        key = bind(T.min(begin + key + 1, self.tile.end) - 1)  # end - 1 would be kept too
        number, offset = split(key, self.layout.page_size)
        page = self.tile.sequences.step.page(self.tile.sequence.page, number)
        return page * self.layout.page_size + offset

    def _stage(self, begin: Expr) -> Expr:
        """Where the block of keys from `begin` on lies in workgroup memory."""
        number = split(begin, self.plan.keys)[0] % _STAGES
        return bind((number * _stage_bytes(self.plan.dim)).astype("uint32"))

    def _copy(self, latents: Expr, row: Expr, begin: Expr) -> None:
        """Start this thread's copies of the block from `begin` on, pieces of a key. What follows a
        key's numbers is finite, and the queries have zeros there."""
        key, of_key = split(mma.kept(self.thread), _COPIERS)
        piece, step, width = bind(of_key * _PIECE), _COPIERS * _PIECE, self.layout.shape.width
        to = self.memory + self._stage(begin)
        to = bind(to + ((key * stride(self.plan.dim) + piece) * 2).astype("uint32"))
        for first in range(0, self.plan.dim, step):
            column = piece + first
            if first + step > width:
                column = T.min(column, width - _PIECE)
            async_copy.copy(to + T.uint32(2 * first), latents[row, bind(column)], 2 * _PIECE)
        async_copy.commit()

    def _added(self, scores: Local) -> Local:
        """Scores of the warp's columns, and of those of the warp with the same rows. Has a
        barrier."""
        thread = mma.kept(self.thread)  # what follows from it is computed here, not kept
        warp, lane = split(thread, LANES)
        four, other = T.Ramp(0, 1, 4), bind((warp + _HIGH) % (_WIDE * _HIGH))
        for j in range(self.plan.keys // 8):
            part = scores.buffer[T.Ramp(4 * j, 1, 4)]
            store(self.parts, part, warp, j, lane, four)
        barrier()
        for j in range(self.plan.keys // 8):
            found = load_vector(self.parts, other, j, lane, 0)
            for i in range(4):
                scores[4 * j + i] = scores[4 * j + i] + found[i]
        return scores
