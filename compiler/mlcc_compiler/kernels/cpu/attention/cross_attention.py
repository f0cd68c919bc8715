"""Attention to an encoder's rows on the CPU: a task is one head of one token.

The rows are few and the same for all tokens of a sequence, so there are no blocks: the scores of
all rows, their softmax, and the sums of values.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    exp_falling,
    fit_lanes,
    span,
    spread,
    sum_lanes,
)
from mlcc_compiler.kernels.frame import (
    Expr,
    PrimFunc,
    Sizes,
    activations,
    f32,
    i32,
    kernel,
    one_of,
    store,
)
from mlcc_compiler.kernels.step import Step, step_argument


def _first_row(view: Step, token: Expr, embeddings: Expr, rows: int) -> Expr:
    """The first row that a token of the step reads."""
    given = T.Cast("int64", view.token(token, "source_row"))
    last = T.Cast("int64", embeddings.shape[0]) - rows
    return bind(T.max(T.min(given, last), T.int64(0)))


def _product(query: Registers, embeddings: Expr, row: Expr, keys: Expr) -> Expr:
    """A head's query times its key in a row. keys: the key's first column."""
    lanes = query.lanes
    total = query[0] * embeddings[row, span(keys, lanes)]
    for p in range(1, len(query.buffers)):
        total = total + query[p] * embeddings[row, span(keys + p * lanes, lanes)]
    return sum_lanes(total)


def cross_attention(
    isa: Isa, step: StepLayout, query: Sizes, layer: int, layers: int, rows: int, scale: float
) -> PrimFunc:
    """(q f32[n, heads, head_dim], step, embeddings f32[slots, layers * 2 * heads * head_dim]) ->
    f32[n, heads, head_dim]. A sequence without rows in the embeddings reads the last ones."""
    heads, head_dim = query[-2:]
    hidden, lanes = heads * head_dim, fit_lanes(head_dim, isa.lanes)
    parts = head_dim // lanes

    def body(q: Expr, words: Expr, embeddings: Expr, out: Expr) -> None:
        view = Step(step, words)
        with T.parallel(q.shape[0] * heads) as task:
            i = bind(T.floordiv(task, heads))
            head = bind(T.floormod(task, heads))
            first = _first_row(view, i, embeddings, rows)
            keys = bind(T.int64(2 * layer * hidden) + head * head_dim)
            values = bind(keys + hidden)
            scores = T.alloc_buffer((rows,), "float32")
            asked, totals = Registers(parts, lanes), Registers(parts, lanes)
            for p in range(parts):
                asked[p] = q[i, head, span(p * lanes, lanes)] * spread(scale, lanes)
                totals[p] = spread(0.0, lanes)
            largest, weight = Registers(1, 1), Registers(1, 1)
            largest[0] = T.float32(-3.0e38)
            with T.serial(rows) as r:
                score = _product(asked, embeddings, bind(first + r), keys)
                store(scores, score, r)
                largest[0] = T.max(largest[0], score)
            weight[0] = T.float32(0)
            with T.serial(rows) as r:
                share = exp_falling(scores[r] - largest[0])
                weight[0] = weight[0] + share
                for p in range(parts):
                    found = embeddings[first + r, span(values + p * lanes, lanes)]
                    totals[p] = totals[p] + spread(share, lanes) * found
            for p in range(parts):
                found = totals[p] / spread(weight[0], lanes)
                store(out, found, i, head, span(p * lanes, lanes))

    rows_of = activations(isa, "n", heads, head_dim)
    return kernel(
        body,
        q=rows_of,
        step=step_argument(step),
        embeddings=f32("slots", 2 * layers * hidden),
        out=rows_of,
    )


def cross_weights(
    isa: Isa,
    step: StepLayout,
    query: Sizes,
    heads: Sequence[int],
    layer: int,
    layers: int,
    rows: int,
    scale: float,
) -> PrimFunc:
    """(q f32[r, all heads, head_dim], tokens i32[r], step, embeddings as above) ->
    f32[r, len(heads) * rows]: what these heads multiply the rows by."""
    head_dim, hidden = query[-1], query[-2] * query[-1]
    lanes = fit_lanes(head_dim, isa.lanes)
    parts = head_dim // lanes

    def body(q: Expr, tokens: Expr, words: Expr, embeddings: Expr, out: Expr) -> None:
        view = Step(step, words)
        with T.parallel(q.shape[0] * len(heads)) as task:
            i = bind(T.floordiv(task, len(heads)))
            place = bind(T.floormod(task, len(heads)))
            head = bind(T.Cast("int64", one_of(heads, place)))
            first = _first_row(view, tokens[i], embeddings, rows)
            keys = bind(T.int64(2 * layer * hidden) + head * head_dim)
            asked, largest, weight = Registers(parts, lanes), Registers(1, 1), Registers(1, 1)
            for p in range(parts):
                asked[p] = q[i, head, span(p * lanes, lanes)] * spread(scale, lanes)
            largest[0], weight[0] = T.float32(-3.0e38), T.float32(0)
            with T.serial(rows) as r:
                score = _product(asked, embeddings, bind(first + r), keys)
                store(out, score, i, place * rows + r)
                largest[0] = T.max(largest[0], score)
            with T.serial(rows) as r:
                share = exp_falling(out[i, place * rows + r] - largest[0])
                store(out, share, i, place * rows + r)
                weight[0] = weight[0] + share
            with T.serial(rows) as r:
                store(out, out[i, place * rows + r] / weight[0], i, place * rows + r)

    return kernel(
        body,
        q=activations(isa, "r", *query[-2:]),
        tokens=i32("r"),
        step=step_argument(step),
        embeddings=f32("slots", 2 * layers * hidden),
        out=f32("r", len(heads) * rows),
    )
