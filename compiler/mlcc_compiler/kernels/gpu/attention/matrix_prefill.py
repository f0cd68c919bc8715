"""Attention of several query tokens by a device's matrix instructions, over pages.

The tiles are those of `prefill.py`: rows of one sequence, a row being a token and one of the query
heads that share a KV head, and blocks of keys that its tokens see. Queries, keys, weights and
values are float16 in workgroup memory, and all sums float32. The tile goes through its keys twice:
first for each row's largest score and the sum of its weights (Milakov and Gimelshein, 2018), then
for the weights e ** (score - largest), whose product with the values adds up in the subgroups'
matrices. A single pass (FlashAttention) would have to multiply those sums by a factor for each row
where a larger score appears; but no element of such a matrix has a known place, and to move them
through workgroup memory for each block costs more than to compute the scores again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.plan import PAD
from mlcc_compiler.kernels.gpu.attention.query_tile import QueryTile
from mlcc_compiler.kernels.gpu.attention.rows import Rows, scaled
from mlcc_compiler.kernels.gpu.attention.sequences import (
    LOWEST,
    VECTOR,
    PagedSequence,
    PagedSequences,
    apply_softcap,
    heads_together,
    load_vector,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.attention.softmax import TwoPassSoftmax
from mlcc_compiler.kernels.gpu.attention.tiles import each_tile
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.matrix_unit import UNITS
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    clamp_f16,
    int32,
    real,
    shared,
    when,
)

_SUBGROUPS = 4
_GAP = 8
"""float16 cells between rows in workgroup memory: against bank conflicts; keeps rows aligned."""


@dataclass(frozen=True)
class MatrixPlan:
    """How a workgroup divides a tile."""

    threads: int
    heads: int
    """Query heads of a token in the tile."""
    rows: int
    """Query rows of a tile."""
    keys: int
    """Keys of a block."""
    dim: int
    """head_dim, with zeros up to whole matrices for each subgroup."""
    over_rows: int
    over_columns: int
    """Subgroups beside each other: down, and across keys or dimensions."""
    edge: int
    """Rows and columns of a matrix."""

    @property
    def tokens(self) -> int:
        """Query tokens of a tile."""
        return self.rows // self.heads

    @property
    def high(self) -> int:
        """Matrices of a subgroup, down."""
        return self.rows // (self.over_rows * self.edge)

    @property
    def wide(self) -> int:
        """Matrices of scores of a subgroup, across."""
        return self.keys // (self.over_columns * self.edge)

    @property
    def wide_dim(self) -> int:
        """Matrices of outputs of a subgroup, across."""
        return self.dim // (self.over_columns * self.edge)

    @property
    def shared_bytes(self) -> int:
        """Workgroup memory: queries, a block of keys or values, scores, weights, and the rest."""
        halves = (self.rows + self.keys) * (self.dim + _GAP) + self.keys * (self.rows + _GAP)
        rest = self.rows + self.keys + self.threads
        return 2 * halves + 4 * (self.keys * (self.rows + PAD) + rest)

    @classmethod
    def of(cls, gpu: Gpu, shape: AttentionShape) -> MatrixPlan | None:
        """The largest tile that fits; None if none does, or the device has no such instructions."""
        if not (gpu.matrix_unit and gpu.f16) or shape.head_dim % VECTOR:
            return None
        edge, threads = UNITS[gpu.matrix_unit].edge, _SUBGROUPS * gpu.subgroup
        for rows, keys in ((64, 64), (64, 32), (32, 32), (16, 32)):
            over_rows = min(rows // edge, _SUBGROUPS)
            over_columns = _SUBGROUPS // over_rows
            across = over_columns * edge
            dim = ceil_div(shape.head_dim, across) * across
            heads = heads_together(shape, rows)[0]
            plan = cls(threads, heads, rows, keys, dim, over_rows, over_columns, edge)
            fits = keys % across == 0 and plan.shared_bytes <= gpu.shared_bytes
            if fits and threads % rows == 0:  # a thread has keys of one row
                return plan
        return None


def matrix_prefill(
    gpu: Gpu,
    plan: MatrixPlan,
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
    splits = shape.group // plan.heads

    def run(sequence: PagedSequence, start: Expr, count: Expr, part: Expr, thread: Expr) -> None:
        head = bind(part * plan.heads)
        queries = QueryTile(sequences, sequence, start, count, plan.heads)
        tile = MatrixTile(gpu, plan, queries, thread)
        tile.run(q, Rows(gpu, sequences.layout, *pages), part // splits, head, sinks)
        tile.finish(out, head)

    each_tile(sequences, plan, shape.kv_heads * splits, most, out, run)


class MatrixTile:
    """Emits the work of one workgroup."""

    def __init__(self, gpu: Gpu, plan: MatrixPlan, queries: QueryTile, thread: Expr) -> None:
        self.plan, self.tile, self.shape, self.thread = plan, queries, queries.shape, thread
        self.unit, stride = UNITS[gpu.matrix_unit], plan.dim + _GAP
        subgroup = bind(thread // gpu.subgroup)
        self.subgroup = subgroup
        self.row = bind(subgroup % plan.over_rows * (plan.high * plan.edge))
        self.column = bind(subgroup // plan.over_rows)
        self.softmax = TwoPassSoftmax(plan.rows, plan.keys, plan.threads, thread)
        self.scores = shared((plan.keys, plan.rows + PAD))
        self.queries = shared((plan.rows, stride), "float16")
        self.block = shared((plan.keys, stride), "float16")
        self.weights = shared((plan.keys, plan.rows + _GAP), "float16")
        self.places = shared((plan.keys,), "int32")

    def run(self, q: Expr, rows: Rows, kv_head: Expr, head: Expr, sinks: Expr | None) -> None:
        """Go through the blocks of keys twice."""
        plan, unit = self.plan, self.unit
        self._load_queries(q, head)
        first = self.tile.first_key()

        def each_block(body: Callable[[Local], None]) -> None:
            with T.serial(ceil_div(self.tile.end - first, plan.keys)) as block:
                begin = bind(first + int32(block) * plan.keys)
                self.tile.locate(self.places, begin, kv_head, plan.threads, self.thread)
                barrier()
                self._load_block(rows, 0)
                barrier()
                self._multiply_keys()
                barrier()
                body(self._visible(begin))

        each_block(self.softmax.add)
        sink = None if sinks is None else lambda row: sinks[head + split(row, plan.heads)[1]]
        self.softmax.merge(sink)
        a = unit.inputs("a", plan.high, "weight")
        b = unit.inputs("b", plan.wide_dim, "value")
        self.outputs = unit.sums(plan.high * plan.wide_dim, "output")

        def add_values(scores: Local) -> None:
            softmax = self.softmax
            for i in range(softmax.keys):
                weight = softmax.weight(scores[i]).astype("float16")
                store(self.weights, weight, softmax.first + i, softmax.row)
            self._load_block(rows, rows.to_value)
            barrier()
            self._multiply_values(a, b)
            barrier()

        each_block(add_values)

    def _load_queries(self, q: Expr, head: Expr) -> None:
        plan, tile = self.plan, self.tile

        def load(i: Expr) -> None:
            r, at = split(i, plan.dim // VECTOR)
            inside = tirx.all(r < tile.count * plan.heads, at * VECTOR < self.shape.head_dim)
            token, h = split(r, plan.heads)
            cells = Local(VECTOR)
            for x in range(VECTOR):
                cells[x] = real(0)
            with when(inside):
                found = load_vector(q, tile.token + token, head + h, at)
                for x in range(VECTOR):
                    cells[x] = clamp_f16(found[x] * real(self.shape.scale))
            self._put(self.queries, r, at, [cells[x] for x in range(VECTOR)])

        strided(plan.rows * plan.dim // VECTOR, plan.threads, self.thread, load)

    def _load_block(self, rows: Rows, further: Expr | int, target: Any = None) -> None:
        """target (block) = keys, or, `further` rows on, values; zeros past head_dim."""
        block = self.block if target is None else target
        plan, head_dim = self.plan, self.shape.head_dim
        size, copied = VECTOR, False
        if rows.is_float16 and self.unit.vector > 1 and head_dim % self.unit.vector == 0:
            size, copied = self.unit.vector, True

        def load(i: Expr) -> None:
            j, at = split(i, plan.dim // size)
            row = bind(self.places[j] + further)
            with T.If(at * size < head_dim):
                with T.Then():
                    if copied:
                        cells = T.Ramp(at * size, 1, size)
                        store(block, rows.copy(row, at, size), j, cells)
                    else:
                        found, (scale,) = rows.vector(row, at), rows.scales([row])
                        values = [clamp_f16(scaled(found[x], scale)) for x in range(size)]
                        self._put(block, j, at, values)
                with T.Else():
                    for first in range(0, size, VECTOR):
                        part = at * (size // VECTOR) + first // VECTOR
                        self._put(block, j, part, [real(0)] * VECTOR)

        strided(plan.keys * plan.dim // size, plan.threads, self.thread, load)

    def _put(self, target: Any, row: Expr, at: Expr, values: Sequence[Expr]) -> None:
        """Store a vector as float16."""
        halves = Local(VECTOR, "float16")
        for x, value in enumerate(values):
            halves[x] = value.astype("float16")
        vector = min(self.unit.vector, VECTOR)
        for first in range(0, VECTOR, vector):
            with T.vectorized(vector) as v:
                x = first + int32(v)
                store(target, halves[x], row, at * VECTOR + x)

    def _multiply_keys(self) -> None:
        """scores[key, row] = queries times keys."""
        plan, unit = self.plan, self.unit
        stride, edge = plan.dim + _GAP, plan.edge
        a = unit.inputs("a", plan.high, "query")
        b = unit.inputs("b", plan.wide, "key")
        sums = unit.sums(plan.high * plan.wide, "score")
        for d in range(0, plan.dim, edge):
            for i in range(plan.high):
                at = (self.row + i * edge) * stride + d
                unit.load("a", a, i, self.queries, at, stride)
            for j in range(plan.wide):
                at = (self.column * (plan.wide * edge) + j * edge) * stride + d
                unit.load("b", b, j, self.block, at, stride, transposed=True)
            for i in range(plan.high):
                for j in range(plan.wide):
                    unit.multiply(sums, i * plan.wide + j, a, i, b, j)
        stride = plan.rows + PAD
        for i in range(plan.high):
            for j in range(plan.wide):
                key = self.column * (plan.wide * edge) + j * edge
                at = key * stride + self.row + i * edge
                unit.store(sums, i * plan.wide + j, self.scores, at, stride, transposed=True)

    def _visible(self, begin: Expr) -> Local:
        """The scores of this thread's keys, LOWEST where its row does not see the key."""
        softmax = self.softmax
        bounds, found = self.tile.bounds(softmax.row), Local(softmax.keys)
        for i in range(softmax.keys):
            score = apply_softcap(self.shape, bind(self.scores[softmax.first + i, softmax.row]))
            seen = self.tile.sees(bounds, self.tile.key(bind(begin + softmax.first + i)))
            found[i] = T.if_then_else(seen, score, real(LOWEST))
        return found

    def _multiply_values(self, a: Any, b: Any) -> None:
        """outputs += weights times values."""
        plan, unit, edge = self.plan, self.unit, self.plan.edge
        for k in range(0, plan.keys, edge):
            for i in range(plan.high):
                stride = plan.rows + _GAP
                at = k * stride + self.row + i * edge
                unit.load("a", a, i, self.weights, at, stride, transposed=True)
            for j in range(plan.wide_dim):
                stride = plan.dim + _GAP
                at = k * stride + self.column * (plan.wide_dim * edge) + j * edge
                unit.load("b", b, j, self.block, at, stride)
            for i in range(plan.high):
                for j in range(plan.wide_dim):
                    unit.multiply(self.outputs, i * plan.wide_dim + j, a, i, b, j)

    def finish(self, out: Expr, head: Expr) -> None:
        """out = outputs / the sum of the weights, a matrix of each subgroup at a time."""
        plan, unit, edge = self.plan, self.unit, self.plan.edge
        cells, size = self.scores, plan.keys * (plan.rows + PAD)
        flat = T.decl_buffer((size,), "float32", data=cells.data, scope="shared")
        for i in range(plan.high):
            for j in range(plan.wide_dim):
                at = self.subgroup * edge**2
                unit.store(self.outputs, i * plan.wide_dim + j, cells, at, edge)
                barrier()
                self._write(flat, i, j, out, head)
                barrier()

    def _write(self, cells: Any, i: int, j: int, out: Expr, head: Expr) -> None:
        """Write a matrix of each subgroup."""
        plan, edge = self.plan, self.plan.edge

        def element(index: Expr) -> None:
            of, cell = split(index, edge**2)
            r, c = split(cell, edge)
            down = bind(of % plan.over_rows)
            row = bind((down * plan.high + i) * edge + r)
            d = bind((of // plan.over_rows * plan.wide_dim + j) * edge + c)
            with when(tirx.all(row < self.tile.count * plan.heads, d < self.shape.head_dim)):
                token, h = split(row, plan.heads)
                value = cells[index] / self.softmax.sums[row]
                store(out, value, self.tile.token + token, head + h, d)

        strided(_SUBGROUPS * edge**2, plan.threads, self.thread, element)
