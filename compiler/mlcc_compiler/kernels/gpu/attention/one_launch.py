"""Decode attention by one launch: the workgroup that is done last with a sequence's ranges merges
them, for the query heads that it has.

For GPUs whose workgroups may wait for each other's results (`linear/fragments/async_copy.py`). The
result may be pairs of float16, or 8-bit floats (`fp8_outputs.py`), which the next product reads;
prompts are written as floats first.
How a sequence's ranges are merged depends on nothing but their number.
"""

from __future__ import annotations

from typing import Any, Protocol

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.kernels.frame import (
    SIZE,
    Expr,
    PrimFunc,
    activations,
    f32,
    i32,
    kernel,
    store,
    u32,
)
from mlcc_compiler.kernels.gpu.attention.decode import RangeWork, first_item, range_of
from mlcc_compiler.kernels.gpu.attention.plan import RangePlan
from mlcc_compiler.kernels.gpu.attention.rows import Rows
from mlcc_compiler.kernels.gpu.attention.sequences import (
    LOWEST,
    VECTOR,
    PagedSequence,
    PagedSequences,
    arguments,
    load_vector,
    sink_weight,
    split,
    strided,
)
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_outputs import (
    form_of,
    store_groups,
    store_zeros,
    words_of,
)
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import order_of_text, store_unit
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    barrier,
    bind,
    ceil_div,
    int32,
    largest,
    launch,
    real,
    reduce,
    when,
    zeros,
)

_AHEAD = 4
"""Ranges whose sums a thread has on their way at a time."""


def counters_of(gpu: Gpu, shape: AttentionShape, layout: KvLayout) -> int:
    """Counters of `attend_at_once`: one for each sequence and part of its heads."""
    heads = RangePlan.of(gpu, shape, layout.page_size).heads
    return int(layout.step.max_sequences * shape.kv_heads * (shape.group // heads))


def attend_at_once(gpu: Gpu, shape: AttentionShape, layout: KvLayout, prefill: Any) -> PrimFunc:
    """(the arguments of `sequences.arguments`, counters i32[counters_of], all 0 before and after,
    [sinks], b) -> (sums and stats of `attend_ranges`, f32[n, heads, head_dim], [pairs u32[n, heads
    * head_dim / 2], or 8-bit floats]). With pairs the floats are those of prompts only.

    prefill: emits the launch for sequences of several tokens (`attention.py`).
    """

    def body(q: Expr, *rest: Expr) -> None:
        before, made = rest[: -4 if shape.rounded else -3], rest[-4 if shape.rounded else -3 :]
        sums, stats, out, *pairs = made
        *inputs, most = before
        sinks = inputs.pop() if shape.sinks else None
        *pages, words, counters = inputs
        sequences = PagedSequences(shape, layout, words)
        plan, parts = RangePlan.of(gpu, shape, layout.page_size), (sums, stats)
        merge = RangeMerge(gpu, plan, sequences, parts, (out, *pairs), q.shape[0] <= most, sinks)
        _ranges(gpu, sequences, q, pages, merge, counters)
        with when(q.shape[0] > most):
            prefill(gpu, sequences, most, q, pages, out, sinks)
            if pairs:
                merge.round_all()

    rows = activations(gpu, "n", shape.heads, shape.head_dim)
    given = {**arguments(gpu, shape, layout), "counters": i32(counters_of(gpu, shape, layout))}
    given |= {"sinks": f32(shape.heads)} if shape.sinks else {}
    made = {
        "sums": f32("items", shape.heads, shape.head_dim),
        "stats": f32("items", shape.heads, 2),
    }
    made["out"] = rows
    if shape.rounded:
        made["pairs"] = u32("n", words_of(shape.rounded, shape.heads * shape.head_dim))
    return kernel(body, **given, sequences=SIZE, **made)


def _ranges(
    gpu: Gpu, sequences: PagedSequences, q: Any, pages: Any, merge: RangeMerge, counters: Any
) -> None:
    """Emit the launch of `attend_ranges`, with the merge."""
    shape, layout = sequences.shape, sequences.layout
    plan, rows = RangePlan.of(gpu, shape, layout.page_size), Rows(gpu, layout, *pages)
    splits = shape.group // plan.heads
    parts = shape.kv_heads * splits
    grid = (merge.sums.shape[0], parts)
    with launch(grid, (plan.threads,)) as (item, part, thread):
        merge.clear(item, bind(part * plan.heads), thread)
        with when(item < first_item(sequences, sequences.count)):
            sequence = sequences.of(sequences.find(lambda s: first_item(sequences, s), item))
            begin, count = range_of(sequences, sequence, item, plan.keys)
            with when(tirx.all(sequence.tokens == 1, count > 0)):
                head = bind(part * plan.heads)
                work = RangeWork(gpu, shape, plan, thread, count)
                work.load(sequences, sequence, begin, part // splits, q, head)
                work.score(rows)
                work.softmax(merge.stats, item, head)
                work.add_values(rows, merge.sums, item, head)
                first, ranges = merge.ranges(sequence)
                counter = counters[sequence.index * parts + part]
                with when(async_copy.is_last(counter, ranges)):
                    merge.add(thread, work.scores, sequence, first, ranges, head)


class MergePlan(Protocol):
    """How a workgroup divides the merge."""

    @property
    def threads(self) -> int: ...
    @property
    def keys(self) -> int:
        """Of a range."""

    @property
    def dim(self) -> int:
        """Numbers of a head."""

    @property
    def heads(self) -> int:
        """Of a workgroup."""

    @property
    def score_columns(self) -> int:
        """Ranges whose weights it has at a time."""


class RangeMerge:
    """Emits the merge of a sequence's ranges."""

    def __init__(
        self,
        gpu: Gpu,
        plan: MergePlan,
        sequences: PagedSequences,
        partial: tuple[Any, Any],
        made: tuple[Any, ...],
        decodes: Expr,
        sinks: Any = None,
    ) -> None:
        self.gpu, self.sequences, self.sinks = gpu, sequences, sinks
        self.shape = sequences.shape
        self.plan = plan
        (self.sums, self.stats), (self.out, *self.pairs) = partial, made
        rounded = self.shape.rounded
        self.fp8 = form_of(rounded, self.shape.heads * plan.dim) if rounded else None
        self.decodes = decodes
        """Whether no sequence has several tokens: then the result is written as it is read."""

    def clear(self, item: Expr, head: Expr, thread: Expr) -> None:
        """Zeros for a row after the last token, in a step that is padded."""
        plan = self.plan
        behind = tirx.all(self.decodes, item >= self.sequences.tokens, item < self.out.shape[0])
        with when(behind):
            strided(
                plan.heads * (plan.dim // UNIT),
                plan.threads,
                thread,
                lambda i: self._write([real(0)] * UNIT, item, head, i),
            )

    def ranges(self, sequence: PagedSequence) -> tuple[Expr, Expr]:
        """(workgroup of the first range with visible keys, ranges)."""
        keys, sequences = self.plan.keys, self.sequences
        seen = sequences.first_key(sequence)
        first, _ = split(T.max(seen - sequence.base, 0), keys)
        count = bind(ceil_div(sequence.keys - sequence.base, keys) - first)
        return bind(first_item(sequences, sequence.index) + first), count

    def add(
        self,
        thread: Expr,
        weights: Any,
        sequence: PagedSequence,
        item: Expr,
        count: Expr,
        head: Expr,
    ) -> None:
        """Emit the sums over all ranges, weighted by e ** (their largest score - the largest).
        weights: workgroup memory f32[heads, score_columns]."""
        plan = self.plan
        teams = 1
        while teams < plan.heads:
            teams *= 2
        lanes = plan.threads // teams
        team, lane = bind(thread // lanes), bind(thread % lanes)
        h = bind(T.min(team, plan.heads - 1))
        best, total = zeros(1, LOWEST), zeros(1)

        def compare(i: Expr) -> None:
            best[0] = T.max(best[0], self.stats[item + i, head + h, 0])

        strided(count, lanes, lane, compare)
        top = reduce(self.gpu, best[0], largest, lane, lanes, team, teams)

        def accumulate(i: Expr) -> None:
            weight = T.exp(self.stats[item + i, head + h, 0] - top)
            total[0] = total[0] + weight * self.stats[item + i, head + h, 1]

        strided(count, lanes, lane, accumulate)
        summed = reduce(self.gpu, total[0], add, lane, lanes, team, teams)
        if self.sinks is not None:
            summed = summed + sink_weight(bind(self.sinks[head + h]), top)
        factor = bind(real(1) / summed)
        tasks = -(-plan.heads * plan.dim // UNIT // plan.threads)
        outputs, block = zeros(tasks * UNIT), plan.score_columns
        with T.serial(ceil_div(count, block)) as at:
            start = bind(int32(at) * block)
            some = bind(T.min(count - start, block))

            def weigh(i: Expr) -> None:
                value = T.exp(self.stats[item + start + i, head + h, 0] - top) * factor
                with when(team < plan.heads):
                    store(weights, value, h, i)

            strided(some, lanes, lane, weigh)
            barrier()
            self._gather(outputs, weights, bind(item + start), some, head, thread)
            barrier()
        for task in range(tasks):
            i = bind(thread + task * plan.threads)
            values = [outputs[task * UNIT + x] for x in range(UNIT)]
            self._finish(values, sequence.token, head, i, thread)

    def _gather(
        self, outputs: Local, weights: Any, item: Expr, count: Expr, head: Expr, thread: Expr
    ) -> None:
        """Add some ranges; a thread has units of eight neighbours of a head."""
        plan, units = self.plan, self.plan.dim // UNIT
        for task in range(-(-plan.heads * units // plan.threads)):
            place = bind(T.min(thread + task * plan.threads, plan.heads * units - 1))
            h, unit = split(place, units)
            with T.serial(ceil_div(count, _AHEAD)) as step:
                found = []
                for i in range(_AHEAD):
                    at = bind(int32(step) * _AHEAD + i)
                    inside = bind(T.min(at, count - 1))
                    weight = bind(T.if_then_else(at < count, weights[h, inside], real(0)))
                    vectors = [
                        load_vector(self.sums, item + inside, head + h, unit * 2 + half)
                        for half in range(UNIT // VECTOR)
                    ]
                    found.append((weight, vectors))
                for weight, vectors in found:
                    for x in range(UNIT):
                        cell = task * UNIT + x
                        value = vectors[x // VECTOR][x % VECTOR]
                        outputs[cell] = outputs[cell] + weight * value

    def _finish(self, values: list[Expr], token: Expr, head: Expr, i: Expr, thread: Expr) -> None:
        """Emit the store of unit i of the workgroup's heads, if there is one."""
        units = self.plan.dim // UNIT
        inside = i < self.plan.heads * units
        if self.fp8 is None:
            with when(inside):
                self._write(values, token, head, i)
            return
        threads = thread, self.plan.threads
        with T.If(self.decodes):
            with T.Then():
                at = bind(head * units + i)
                store_groups(self.gpu, self.pairs[0], token, self.fp8, values, at, threads, inside)
            with T.Else(), when(inside):
                self._write_floats(values, token, head, i)

    def _write(self, values: list[Expr], token: Expr, head: Expr, i: Expr) -> None:
        """Emit the store of unit i, of 8-bit floats zeros."""
        if not self.pairs:
            self._write_floats(values, token, head, i)
            return
        with T.If(self.decodes):
            with T.Then():
                at = bind(head * (self.plan.dim // UNIT) + i)
                if self.fp8 is not None:
                    store_zeros(self.pairs[0], token, self.fp8, at)
                else:
                    order = order_of_text(self.shape.rounded)
                    store_unit(self.pairs[0], values, order, token, at)
            with T.Else():
                self._write_floats(values, token, head, i)

    def _write_floats(self, values: list[Expr], token: Expr, head: Expr, i: Expr) -> None:
        h, unit = split(i, self.plan.dim // UNIT)
        for x, value in enumerate(values):
            store(self.out, value, token, head + h, unit * UNIT + x)

    def round_all(self) -> None:
        """Emit the launch that rounds the floats."""
        shape, (pairs,), threads = self.shape, self.pairs, self.gpu.threads
        units = shape.head_dim // UNIT
        with launch((ceil_div(shape.heads * units, threads), self.out.shape[0]), (threads,)) as (
            block,
            row,
            thread,
        ):
            at = bind(block * threads + thread)
            inside = at < shape.heads * units
            head, unit = split(bind(T.min(at, shape.heads * units - 1)), units)
            halves = [
                load_vector(self.out, row, head, unit * 2 + half) for half in range(UNIT // VECTOR)
            ]
            values = [halves[x // VECTOR][x % VECTOR] for x in range(UNIT)]
            if self.fp8 is not None:
                store_groups(self.gpu, pairs, row, self.fp8, values, at, (thread, threads), inside)
            else:
                with when(inside):
                    store_unit(pairs, values, order_of_text(shape.rounded), row, at)
