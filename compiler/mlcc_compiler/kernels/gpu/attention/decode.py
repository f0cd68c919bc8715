"""Attention of sequences with one query token: Flash-Decoding (Dao et al., 2023) over pages.

The keys of a sequence are cut into ranges of about 128, counted from its own first page, so that
the result depends on no neighbour. A workgroup takes one range for the query heads of one KV head:
each key and value is read once, as long as those heads fit (`RangePlan`). `merge` joins
the ranges. The host knows only the sizes of the step, so it starts `range_items` workgroups, a
bound that is close; each finds its sequence by bisection and the surplus ends at once.

Bytes: a range of 128 keys of 128 float16 dimensions is 64 KiB of pages, and 512 bytes of partial
sums for each query head. Batch 1 at 32,768 keys and 8 KV heads is 2,048 workgroups. A thread keeps
several keys in flight; neighbouring threads read neighbouring vectors of a row.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, kernel, store
from mlcc_compiler.kernels.gpu.attention.plan import RangePlan, pages_per_range
from mlcc_compiler.kernels.gpu.attention.rows import Rows, scaled
from mlcc_compiler.kernels.gpu.attention.sequences import (
    LOWEST,
    VECTOR,
    PagedSequence,
    PagedSequences,
    apply_softcap,
    arguments,
    load_vector,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    add,
    barrier,
    bind,
    ceil_div,
    int32,
    largest,
    launch,
    real,
    reduce,
    shared,
    when,
    zeros,
)


def attend_ranges(gpu: Gpu, shape: AttentionShape, layout: KvLayout) -> PrimFunc:
    """(the arguments of `sequences.arguments`) -> sums f32[items, heads, head_dim] of values
    weighted by e ** (score - largest), stats f32[items, heads, 2]: the largest score and the sum of
    the weights.

    items is `range_items`. Only ranges of sequences with one token are computed, and of those only
    ranges with a visible key; other cells are left unchanged.
    """
    plan = RangePlan.of(gpu, shape, layout.page_size)

    def body(q: Expr, *rest: Expr) -> None:
        *pages, words, sums, stats = rest
        sequences = PagedSequences(shape, layout, words)
        rows = Rows(gpu, layout, *pages)
        splits = shape.group // plan.heads
        grid = (sums.shape[0], shape.kv_heads * splits)
        with (
            launch(grid, (plan.threads,)) as (item, part, thread),
            when(item < first_item(sequences, sequences.count)),
        ):
            sequence = sequences.of(sequences.find(lambda s: first_item(sequences, s), item))
            begin, count = range_of(sequences, sequence, item, plan.keys)
            with when(tirx.all(sequence.tokens == 1, count > 0)):
                head = bind(part * plan.heads)
                work = RangeWork(gpu, shape, plan, thread, count)
                work.load(sequences, sequence, begin, part // splits, q, head)
                work.score(rows)
                work.softmax(stats, item, head)
                work.add_values(rows, sums, item, head)

    parts, stats = f32("items", shape.heads, shape.head_dim), f32("items", shape.heads, 2)
    return kernel(body, **arguments(gpu, shape, layout), sums=parts, stats=stats)


def first_item(sequences: PagedSequences, s: Expr) -> Expr:
    """The workgroup of a sequence's first range; strictly monotone, with enough distance for its
    ranges."""
    pages = pages_per_range(sequences.layout.page_size)
    return tirx.truncdiv(sequences.first_page(s), pages) + s


def range_of(
    sequences: PagedSequences, sequence: PagedSequence, item: Expr, keys: int
) -> tuple[Expr, Expr]:
    """(first key, keys) of a range, without keys outside the window."""
    start = bind((item - first_item(sequences, sequence.index)) * keys + sequence.base)
    begin = bind(T.max(start, sequences.first_key(sequence)))
    return begin, bind(T.min(start + keys, sequence.keys) - begin)


class RangeWork:
    """Emits the work of one workgroup over `count` visible keys."""

    def __init__(
        self, gpu: Gpu, shape: AttentionShape, plan: RangePlan, thread: Expr, count: Expr
    ) -> None:
        self.gpu, self.shape, self.plan = gpu, shape, plan
        self.thread, self.count = thread, count
        self.queries = shared((plan.heads, plan.dim))
        self.places = shared((plan.keys,), "int32")
        self.scores = shared((plan.heads, plan.score_columns))
        self.scratch = shared((plan.scratch,))

    def load(
        self,
        sequences: PagedSequences,
        sequence: PagedSequence,
        begin: Expr,
        kv_head: Expr,
        q: Expr,
        head: Expr,
    ) -> None:
        """Load the scaled queries, and the location of each key."""
        plan = self.plan

        def query(i: Expr) -> None:
            h, d = split(i, plan.dim)
            store(self.queries, q[sequence.token, head + h, d] * real(self.shape.scale), h, d)

        strided(plan.heads * plan.dim, plan.threads, self.thread, query)
        strided(
            self.count,
            plan.threads,
            self.thread,
            lambda i: store(self.places, sequences.key_row(sequence, begin + i, kv_head), i),
        )
        barrier()

    def score(self, rows: Rows) -> None:
        """scores[head, key]: each thread multiplies its vectors of some keys with all heads."""
        plan, heads, size = self.plan, self.plan.heads, self.plan.keys_at_once
        lane = bind(self.thread % plan.lanes)
        team, teams = bind(self.thread // plan.lanes), plan.threads // plan.lanes
        with T.serial(ceil_div(self.count, plan.pass_keys)) as k:
            first = bind(int32(k) * plan.pass_keys)
            keys = [
                bind(self.places[T.min(first + j * teams + team, self.count - 1)])
                for j in range(size)
            ]
            dots = zeros(size * heads)
            with T.serial(plan.dim // VECTOR // plan.lanes) as v:
                at_vector = bind(int32(v) * plan.lanes + lane)
                loaded = [rows.vector(key, at_vector) for key in keys]
                for h in range(heads):
                    query = load_vector(self.queries, h, at_vector)
                    for j, vector in enumerate(loaded):
                        at = h * size + j
                        for x in range(VECTOR):
                            dots[at] = dots[at] + query[x] * vector[x]
            scales = rows.scales(keys)
            for h in range(0, heads, plan.slice):
                for g in range(plan.slice):
                    for j in range(size):
                        key = g * plan.pass_keys + j * teams + team
                        dot = scaled(dots[(h + g) * size + j], scales[j])
                        store(self.scratch, dot, key * (plan.lanes + 1) + lane)
                barrier()
                self._sum_lanes(h, first)
                barrier()

    def _sum_lanes(self, head: int, first: Expr) -> None:
        """The dot products of some heads, summed over threads."""
        plan = self.plan

        def total(i: Expr) -> None:
            g, offset = split(i, plan.pass_keys)
            key = bind(first + offset)
            summed = zeros(1)
            for lane in range(plan.lanes):
                summed[0] = summed[0] + self.scratch[i * (plan.lanes + 1) + lane]
            with when(key < self.count):
                store(self.scores, apply_softcap(self.shape, summed[0]), head + g, key)

        strided(plan.slice * plan.pass_keys, plan.threads, self.thread, total)

    def softmax(self, stats: Expr, item: Expr, head: Expr) -> None:
        """Turn scores into weights, e ** (score - the head's largest), and 0 past the last key."""
        plan, count = self.plan, self.count
        teams = 1
        while teams < plan.heads:
            teams *= 2
        lanes = plan.threads // teams
        team, lane = bind(self.thread // lanes), bind(self.thread % lanes)
        h = bind(T.min(team, plan.heads - 1))
        # held in registers in between: TVM would put a barrier into a loop that changes cells
        keys = [bind(i * lanes + lane) for i in range(ceil_div(plan.score_columns, lanes))]
        held, total = zeros(len(keys), LOWEST), zeros(1)
        best = zeros(1, LOWEST)
        for i, key in enumerate(keys):
            with when(key < count):
                held[i] = self.scores[h, key]
                best[0] = T.max(best[0], held[i])
        top = reduce(self.gpu, best[0], largest, lane, lanes, team, teams)
        barrier()
        for i, key in enumerate(keys):
            held[i] = T.if_then_else(key < count, T.exp(held[i] - top), real(0))
            total[0] = total[0] + held[i]
            with when(tirx.all(team < plan.heads, key < plan.score_columns)):
                store(self.scores, held[i], h, key)
        summed = reduce(self.gpu, total[0], add, lane, lanes, team, teams)
        with when(tirx.all(lane == 0, team < plan.heads)):
            store(stats, top, item, head + h, 0)
            store(stats, summed, item, head + h, 1)
        barrier()

    def add_values(self, rows: Rows, sums: Expr, item: Expr, head: Expr) -> None:
        """Weighted sums of the values; each thread holds a vector of every head."""
        plan, heads, size = self.plan, self.plan.heads, self.plan.values_at_once
        team, column = bind(self.thread // plan.columns), bind(self.thread % plan.columns)
        outputs = zeros(heads * VECTOR)
        with when(team < plan.teams):
            step = plan.teams * size
            with T.serial(ceil_div(self.count, step)) as k:
                keys = [bind(int32(k) * step + j * plan.teams + team) for j in range(size)]
                places = [
                    bind(self.places[T.min(key, self.count - 1)] + rows.to_value) for key in keys
                ]
                loaded = [rows.vector(at, column) for at in places]
                scales = rows.scales(places)
                for h in range(heads):
                    for key, vector, scale in zip(keys, loaded, scales, strict=True):
                        weight = bind(scaled(self.scores[h, key], scale))
                        for x in range(VECTOR):
                            at = h * VECTOR + x
                            outputs[at] = outputs[at] + weight * vector[x]
        for first in range(0, heads, plan.slice):
            with when(team < plan.teams):
                for g in range(plan.slice):
                    for x in range(VECTOR):
                        at = (g * plan.teams + team) * plan.dim + column * VECTOR + x
                        store(self.scratch, outputs[(first + g) * VECTOR + x], at)
            barrier()
            self._sum_teams(sums, item, bind(head + first))
            barrier()

    def _sum_teams(self, sums: Expr, item: Expr, head: Expr) -> None:
        """The outputs of some heads, summed over teams."""
        plan = self.plan

        def total(i: Expr) -> None:
            g, d = split(i, plan.dim)
            summed = zeros(1)
            with T.serial(plan.teams) as t:
                at = (g * plan.teams + int32(t)) * plan.dim + d
                summed[0] = summed[0] + self.scratch[at]
            store(sums, summed[0], item, head + g, d)

        strided(plan.slice * plan.dim, plan.threads, self.thread, total)
