"""Attention of sequences with several query tokens: FlashAttention (Dao et al., 2022) over pages.

A workgroup takes a tile of query rows of one sequence, a row being a token and one of the query
heads that share a KV head, so that a short chunk fills a tile too. It goes through the keys that
its tokens see, a block at a time, with a running maximum and sum per row; blocks that causality or
the window hide are never visited. Workgroup memory is small on WebGPU, so queries, keys and values
pass through it in slices of head_dim, and outputs stay in registers.

Scores and outputs are products of two matrices in workgroup memory: each thread multiplies
ROWS x `columns` elements, both operands read as vectors, in float32. With matrix instructions:
`matrix_prefill.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.plan import (
    COLUMN_THREADS,
    PAD,
    ROWS,
    TilePlan,
)
from mlcc_compiler.kernels.gpu.attention.query_tile import QueryTile
from mlcc_compiler.kernels.gpu.attention.rows import Rows
from mlcc_compiler.kernels.gpu.attention.sequences import (
    LOWEST,
    PagedSequence,
    PagedSequences,
    apply_softcap,
    load_vector,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.attention.softmax import OnlineSoftmax
from mlcc_compiler.kernels.gpu.attention.tiles import each_tile
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    barrier,
    bind,
    ceil_div,
    int32,
    real,
    shared,
    when,
    zeros,
)


def prefill(
    gpu: Gpu,
    sequences: PagedSequences,
    most: Expr,
    q: Expr,
    pages: Sequence[Expr],
    out: Expr,
    sinks: Expr | None = None,
) -> None:
    """Emit the launch that fills out's rows of sequences with several tokens (`each_tile`); pages
    with their scales, if they have some."""
    shape = sequences.shape
    plan = TilePlan.of(gpu, shape)
    splits = shape.group // plan.heads

    def run(sequence: PagedSequence, start: Expr, count: Expr, part: Expr, thread: Expr) -> None:
        head = bind(part * plan.heads)
        tile = _Tile(plan, QueryTile(sequences, sequence, start, count, plan.heads), thread)
        tile.run(q, Rows(gpu, sequences.layout, *pages), part // splits, head)
        tile.finish(out, head, sinks)

    each_tile(sequences, plan, shape.kv_heads * splits, most, out, run)


class _Tile:
    """Emits the work of one workgroup."""

    def __init__(self, plan: TilePlan, queries: QueryTile, thread: Expr) -> None:
        self.plan, self.queries, self.thread = plan, queries, thread
        self.shape, self.count = queries.shape, queries.count
        # this thread's corner of a product
        self.row_vector = bind(thread // COLUMN_THREADS)
        self.column_vector = bind(thread % COLUMN_THREADS)
        self.row = bind(self.row_vector * ROWS)
        self.column = bind(self.column_vector * plan.columns)
        self.softmax = OnlineSoftmax(plan.rows, plan.keys, plan.threads, thread)
        self.stage = shared((plan.stage,))
        self.places = shared((plan.keys,), "int32")
        self.slices = ceil_div(self.shape.head_dim, plan.keys)
        self.outputs = zeros(self.slices * ROWS * plan.columns)

    def run(self, q: Expr, rows: Rows, kv_head: Expr, head: Expr) -> None:
        """Go through the blocks of keys."""
        plan = self.plan
        first = self.queries.first_key()
        with T.serial(ceil_div(self.queries.end - first, plan.keys)) as block:
            begin = bind(first + int32(block) * plan.keys)
            self.queries.locate(self.places, begin, kv_head, plan.threads, self.thread)
            barrier()
            self._score(q, rows, head, begin)
            self.softmax.update()
            self._add_values(rows)

    def _score(self, q: Expr, rows: Rows, head: Expr, begin: Expr) -> None:
        """weights[key, row] = the scores of a block, LOWEST where a key is hidden."""
        plan, shape, tile = self.plan, self.shape, self.queries
        stride, key_stride = plan.rows + PAD, plan.keys + PAD
        keys_at = plan.depth * stride
        scores = zeros(ROWS * plan.columns)
        with T.serial(ceil_div(shape.head_dim, plan.depth)) as part:
            first = bind(int32(part) * plan.depth)

            def query(i: Expr) -> None:
                r, d = split(i, plan.depth)
                inside = tirx.all(r < self.count * plan.heads, first + d < shape.head_dim)
                with T.If(inside):
                    with T.Then():
                        token, h = split(r, plan.heads)
                        value = q[tile.token + token, head + h, first + d] * real(shape.scale)
                        store(self.stage, value, d * stride + r)
                    with T.Else():
                        store(self.stage, real(0), d * stride + r)

            def key(i: Expr) -> None:
                j, part = split(i, plan.depth // rows.step)
                d = bind(part * rows.step)
                at = bind(keys_at + d * key_stride + j)
                self._load(rows, bind(self.places[j]), first + d, at, key_stride)

            strided(plan.rows * plan.depth, plan.threads, self.thread, query)
            strided(plan.keys * plan.depth // rows.step, plan.threads, self.thread, key)
            barrier()
            with T.serial(plan.depth) as d:
                row = int32(d) * (stride // ROWS) + self.row_vector
                column = (keys_at + int32(d) * key_stride) // plan.columns + self.column_vector
                a = load_vector(self.stage, row, count=ROWS)
                b = load_vector(self.stage, column, count=plan.columns)
                self._multiply(a, b, scores, 0)
            barrier()
        columns = [self.queries.key(bind(begin + self.column + c)) for c in range(plan.columns)]
        for r in range(ROWS):
            bounds = self.queries.bounds(self.row + r)
            for c, j in enumerate(columns):
                seen = self.queries.sees(bounds, j)
                score = bind(apply_softcap(shape, scores[r * plan.columns + c]))
                value = T.if_then_else(seen, score, real(LOWEST))
                store(self.softmax.weights, value, self.column + c, self.row + r)
        barrier()

    def _add_values(self, rows: Rows) -> None:
        """outputs = outputs * factor + weights times values, a slice of dimensions at a time."""
        plan = self.plan
        stride = plan.keys + PAD
        for r in range(ROWS):
            factor = bind(self.softmax.factors[self.row + r])
            for part in range(self.slices):
                for c in range(plan.columns):
                    at = (part * ROWS + r) * plan.columns + c
                    self.outputs[at] = self.outputs[at] * factor
        for part in range(self.slices):
            first = part * plan.keys

            def value(i: Expr, first: int = first) -> None:
                j, part = split(i, plan.keys // rows.step)
                d, row = bind(part * rows.step), bind(self.places[j] + rows.to_value)
                self._load(rows, row, first + d, j * stride + d, 1)

            strided(plan.keys * plan.keys // rows.step, plan.threads, self.thread, value)
            barrier()
            with T.serial(plan.keys) as j:
                a = load_vector(self.softmax.weights, int32(j), self.row_vector, count=ROWS)
                column = int32(j) * (stride // plan.columns) + self.column_vector
                b = load_vector(self.stage, column, count=plan.columns)
                self._multiply(a, b, self.outputs, part * ROWS * plan.columns)
            barrier()

    def finish(self, out: Expr, head: Expr, sinks: Expr | None) -> None:
        """out = outputs / the sum of the weights."""
        plan = self.plan
        sink = None if sinks is None else lambda row: sinks[head + split(row, plan.heads)[1]]
        self.softmax.sum_weights(self.stage, sink)
        for r in range(ROWS):
            row = bind(self.row + r)
            factor = bind(real(1) / self.softmax.factors[row])
            with when(row < self.count * plan.heads):
                token, h = split(row, plan.heads)
                for part in range(self.slices):
                    for c in range(plan.columns):
                        value = self.outputs[(part * ROWS + r) * plan.columns + c] * factor
                        d = bind(self.column + (part * plan.keys + c))
                        with when(d < self.shape.head_dim):
                            store(out, value, self.queries.token + token, head + h, d)

    def _load(self, rows: Rows, row: Expr, d: Expr, at: Expr, stride: int) -> None:
        """Load some elements of a key or value into the stage, `stride` apart; 0 past head_dim."""
        with T.If(d < self.shape.head_dim):
            with T.Then():
                for x, value in enumerate(rows.load(row, d)):
                    store(self.stage, value, at + x * stride)
            with T.Else():
                for x in range(rows.step):
                    store(self.stage, real(0), at + x * stride)

    def _multiply(self, a: Expr, b: Expr, cells: Expr, first: int) -> None:
        """cells[first + r, c] += a[r] * b[c]."""
        for r in range(ROWS):
            for c in range(self.plan.columns):
                at = first + r * self.plan.columns + c
                cells[at] = cells[at] + a[r] * b[c]
