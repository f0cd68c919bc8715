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
            most = int32(embeddings.shape[0]) - rows
            first = bind(T.max(T.min(view.token(i, "source_row"), most), 0))
            keys = bind(2 * layer * hidden + head * head_dim)
            count = -(-rows // threads)
            own, best, total = Local(count), Local(), Local()
            best[0], total[0] = real(-3.0e38), real(0.0)

            def each_own(body: Callable[[int, Expr], None]) -> None:
                for k in range(count):
                    r = bind(k * threads + lane)
                    with when(r < rows):
                        body(k, r)

            def score(k: int, r: Expr) -> None:
                own[k] = real(0.0)
                with T.serial(head_dim) as d:
                    own[k] = own[k] + q[i, head, d] * embeddings[first + r, keys + int32(d)]
                own[k] = own[k] * real(scale)
                best[0] = T.max(best[0], own[k])

            def weigh(k: int, r: Expr) -> None:
                own[k] = tirx.exp(own[k] - top)
                total[0] = total[0] + own[k]
                store(shares, own[k], r)

            each_own(score)
            top = reduce(gpu, best[0], largest, lane, threads)
            each_own(weigh)
            whole = reduce(gpu, total[0], add, lane, threads)
            barrier()
            with T.serial(-(-head_dim // threads)) as k:
                d = bind(int32(k) * threads + lane)
                with when(d < head_dim):
                    summed = Local()
                    summed[0] = real(0.0)
                    with T.serial(rows) as r:
                        value = embeddings[first + int32(r), keys + hidden + d]
                        summed[0] = summed[0] + shares[int32(r)] * value
                    store(out, summed[0] / whole, i, head, d)

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
    threads = gpu.threads
    count = -(-rows // threads)

    def body(q: Expr, tokens: Expr, words: Expr, embeddings: Expr, out: Expr) -> None:
        view = Step(step, words)
        with launch((q.shape[0], len(heads)), (threads, 1)) as (i, place, lane, _):
            most = int32(embeddings.shape[0]) - rows
            given = view.token(tokens[i], "source_row")
            first = bind(T.max(T.min(given, most), 0))
            head = bind(one_of(heads, place))
            keys = bind(2 * layer * hidden + head * head_dim)
            own, best, total = Local(count), Local(), Local()
            best[0], total[0] = real(-3.0e38), real(0.0)

            def each_own(body: Callable[[int, Expr], None]) -> None:
                for k in range(count):
                    r = bind(k * threads + lane)
                    with when(r < rows):
                        body(k, r)

            def score(k: int, r: Expr) -> None:
                own[k] = real(0.0)
                with T.serial(head_dim) as d:
                    own[k] = own[k] + q[i, head, d] * embeddings[first + r, keys + int32(d)]
                own[k] = own[k] * real(scale)
                best[0] = T.max(best[0], own[k])

            def weigh(k: int, r: Expr) -> None:
                own[k] = tirx.exp(own[k] - top)
                total[0] = total[0] + own[k]

            def write(k: int, r: Expr) -> None:
                store(out, own[k] / whole, i, place * rows + r)

            each_own(score)
            top = reduce(gpu, best[0], largest, lane, threads)
            each_own(weigh)
            whole = reduce(gpu, total[0], add, lane, threads)
            each_own(write)

    return kernel(
        body,
        q=activations(gpu, "r", *query[-2:]),
        tokens=i32("r"),
        step=step_argument(step),
        embeddings=f32("slots", 2 * layers * hidden),
        out=f32("r", len(heads) * rows),
    )
