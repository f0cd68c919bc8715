"""Attention to an encoder's rows on a GPU: a workgroup is one head of one token, whose threads
share the rows, then the columns of the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T, tirx
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
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    barrier,
    bind,
    int32,
    largest,
    launch,
    real,
    reduce,
    shared,
    when,
)
from mlcc_compiler.kernels.step import Step, step_argument


class _Weights:
    """Emits the softmax of one head of one token over an encoder's rows, each thread its own rows.

    query: a column of the head -> its element; first: the first row; keys: their first column."""

    def __init__(
        self, gpu: Gpu, query: Callable[[Expr], Expr], embeddings: Expr, first: Expr, keys: Expr
    ) -> None:
        self.gpu, self.query, self.embeddings = gpu, query, embeddings
        self.first, self.keys = first, keys

    def emit(self, lane: Expr, rows: int, head_dim: int, scale: float) -> None:
        """Sets `own`, the thread's weights before they are divided by `whole`, the sum of all."""
        threads = self.gpu.threads
        self.lane, self.rows, self.count = lane, rows, -(-rows // threads)
        self.own, best, total = Local(self.count), Local(), Local()
        best[0], total[0] = real(-3.0e38), real(0.0)

        def score(k: int, r: Expr) -> None:
            self.own[k] = real(0.0)
            with T.serial(head_dim) as d:
                key = self.embeddings[self.first + r, self.keys + int32(d)]
                self.own[k] = self.own[k] + self.query(d) * key
            self.own[k] = self.own[k] * real(scale)
            best[0] = T.max(best[0], self.own[k])

        def weigh(k: int, r: Expr) -> None:
            self.own[k] = tirx.exp(self.own[k] - top)
            total[0] = total[0] + self.own[k]

        self.each_own(score)
        top = reduce(self.gpu, best[0], largest, lane, threads)
        self.each_own(weigh)
        self.whole = reduce(self.gpu, total[0], add, lane, threads)

    def each_own(self, body: Callable[[int, Expr], None]) -> None:
        """body(place in `own`, row) for each of the thread's rows."""
        for k in range(self.count):
            r = bind(k * self.gpu.threads + self.lane)
            with when(r < self.rows):
                body(k, r)


def _first_row(view: Step, token: Expr, embeddings: Expr, rows: int) -> Expr:
    """The first row that a token of the step reads."""
    most = int32(embeddings.shape[0]) - rows
    return bind(T.max(T.min(view.token(token, "source_row"), most), 0))


def cross_attention(
    gpu: Gpu, step: StepLayout, query: Sizes, layer: int, layers: int, rows: int, scale: float
) -> PrimFunc:
    """(q f32[n, heads, head_dim], step, embeddings f32[slots, layers * 2 * heads * head_dim]) ->
    f32[n, heads, head_dim]. A sequence without rows in the embeddings reads the last ones."""
    heads, head_dim = query[-2:]
    hidden, threads = heads * head_dim, gpu.threads

    def body(q: Expr, words: Expr, embeddings: Expr, out: Expr) -> None:
        view = Step(step, words)
        with launch((q.shape[0], heads), (threads, 1)) as (i, head, lane, _):
            shares = shared((rows,))
            first = _first_row(view, i, embeddings, rows)
            keys = bind(2 * layer * hidden + head * head_dim)
            weights = _Weights(gpu, lambda d: q[i, head, d], embeddings, first, keys)
            weights.emit(lane, rows, head_dim, scale)
            weights.each_own(lambda k, r: store(shares, weights.own[k], r))
            barrier()
            with T.serial(-(-head_dim // threads)) as k:
                d = bind(int32(k) * threads + lane)
                with when(d < head_dim):
                    summed = Local()
                    summed[0] = real(0.0)
                    with T.serial(rows) as r:
                        value = embeddings[first + int32(r), keys + hidden + d]
                        summed[0] = summed[0] + shares[int32(r)] * value
                    store(out, summed[0] / weights.whole, i, head, d)

    found = activations(gpu, "n", heads, head_dim)
    return kernel(
        body,
        q=found,
        step=step_argument(step),
        embeddings=f32("slots", 2 * layers * hidden),
        out=found,
    )


def cross_weights(
    gpu: Gpu,
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

    def body(q: Expr, tokens: Expr, words: Expr, embeddings: Expr, out: Expr) -> None:
        view = Step(step, words)
        with launch((q.shape[0], len(heads)), (gpu.threads, 1)) as (i, place, lane, _):
            first = _first_row(view, tokens[i], embeddings, rows)
            head = bind(one_of(heads, place))
            keys = bind(2 * layer * hidden + head * head_dim)
            weights = _Weights(gpu, lambda d: q[i, head, d], embeddings, first, keys)
            weights.emit(lane, rows, head_dim, scale)
            weights.each_own(
                lambda k, r: store(out, weights.own[k] / weights.whole, i, place * rows + r)
            )

    return kernel(
        body,
        q=activations(gpu, "r", *query[-2:]),
        tokens=i32("r"),
        step=step_argument(step),
        embeddings=f32("slots", 2 * layers * hidden),
        out=f32("r", len(heads) * rows),
    )
