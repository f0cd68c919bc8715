"""Routing on the GPU: the choice of experts, and the weighted sum of their outputs."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element, sigmoid
from mlcc_compiler.kernels.gpu.sampling.ordered_floats import ordered_bits
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
    shared,
    when,
)


def route(gpu: Gpu, row: Sizes, k: int, score: str, normalise: int, scale: float) -> PrimFunc:
    """(logits f32[n, experts]) -> choice i32[n, k], weights f32[n, k]: see `ops.route`.

    A workgroup a row. An expert's rank is the number of experts before it, which each thread counts
    for its own experts: no sorting, and k different experts for any logits.
    """
    (experts,) = row
    threads = min(gpu.threads, 64 if experts <= 64 else gpu.threads)
    each = ceil_div(experts, threads)

    def body(logits: Expr, choice: Expr, weights: Expr) -> None:
        with launch((logits.shape[0],), (threads,)) as (token, thread):
            keys = shared((experts,), "uint32")
            mine = [bind(thread + i * threads) for i in range(each)]
            values, ranks = Local(each), Local(each, "int32")
            top = Local()
            for i, e in enumerate(mine):
                values[i] = logits[token, tirx.min(e, int32(experts - 1))]
                top[0] = values[i] if i == 0 else T.max(top[0], values[i])
                with when(e < experts):
                    store(keys, ordered_bits(values[i]), e)
            barrier()
            for i, e in enumerate(mine):
                own = ordered_bits(values[i])
                ranks[i] = T.int32(0)
                with T.serial(experts) as other:
                    key = bind(keys[int32(other)])
                    before = tirx.any(key > own, tirx.all(key == own, int32(other) < e))
                    ranks[i] = ranks[i] + T.Select(before, T.int32(1), T.int32(0))
            barrier()  # TVM may put what `reduce` shares where the keys were
            most = reduce(gpu, top[0], largest, thread, threads) if score == "softmax" else None
            total = Local()
            total[0] = real(0)
            for i, e in enumerate(mine):
                shifted = values[i] if most is None else values[i] - most
                values[i] = sigmoid(shifted) if most is None else T.exp(shifted)
                counted = tirx.all(e < experts, ranks[i] < k) if normalise else e < experts
                total[0] = total[0] + T.Select(counted, values[i], real(0))
            factor = real(scale)
            if normalise or score == "softmax":
                factor = bind(factor / reduce(gpu, total[0], add, thread, threads))
            for i, e in enumerate(mine):
                with when(tirx.all(e < experts, ranks[i] < k)):
                    store(choice, e, token, ranks[i])
                    store(weights, values[i] * factor, token, ranks[i])

    chosen = f32("n", k)
    return kernel(body, logits=f32("n", experts), choice=i32("n", k), weights=chosen)


def combine(gpu: Gpu, row: Sizes, chosen: Sizes) -> PrimFunc:
    """(x f32[n, k * hidden], weights f32[n, k]) -> f32[n, hidden]."""
    (k,) = chosen
    hidden = row[0] // k

    def body(x: Expr, weights: Expr, y: Expr) -> None:
        def element(i: Expr, column: Expr) -> None:
            total = x[i, column] * weights[i, 0]
            for j in range(1, k):
                total = total + x[i, column + j * hidden] * weights[i, j]
            store(y, total, i, column)

        each_element(gpu, x.shape[0], hidden, element)

    return kernel(
        body, x=activations(gpu, "n", *row), weights=f32("n", k), y=activations(gpu, "n", hidden)
    )
