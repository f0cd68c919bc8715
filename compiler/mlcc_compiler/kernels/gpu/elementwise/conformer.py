"""Kernels of Conformers (Gulati et al., 2020) on the GPU: attention and convolution over the last
rows of a row's own text.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import (
    Expr,
    PrimFunc,
    Sizes,
    activations,
    f32,
    i32,
    kernel,
    store,
)
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element, tanh
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    int32,
    launch,
    real,
    shared,
    when,
)


def relative_attention(
    gpu: Gpu,
    query: Sizes,
    key: Sizes,
    value: Sizes,
    bias: Sizes,
    positions: Sizes,
    heads: int,
    cap: float,
) -> PrimFunc:
    """(q, k, v f32[n, hidden], bias f32[window, hidden], positions i32[n]) -> f32[n, hidden]: see
    `ops.relative_attention`. A workgroup is one head of one row, whose threads share the past,
    then the columns."""
    (hidden,), (window, _) = query, bias
    head_dim, threads = hidden // heads, gpu.threads

    def body(q: Expr, k: Expr, v: Expr, b: Expr, places: Expr, out: Expr) -> None:
        with launch((q.shape[0], heads), (threads, 1)) as (i, head, lane, _):
            scores, first = shared((window,)), bind(head * head_dim)
            count = bind(T.min(places[i] + 1, window))
            for start in range(0, window, threads):
                d = bind(start + lane)
                with when(d < count):
                    score = Local()
                    score[0] = real(0)
                    with T.serial(head_dim) as j:
                        c = bind(first + int32(j))
                        score[0] = score[0] + q[i, c] * (k[i - d, c] + b[d, c])
                    store(scores, tanh(score[0] * real(1 / cap)) * real(cap), d)
            barrier()
            largest = Local()
            largest[0] = real(-3.0e38)
            with T.serial(count) as d:
                largest[0] = T.max(largest[0], scores[int32(d)])
            for start in range(0, head_dim, threads):
                c = bind(start + lane)
                with when(c < head_dim):
                    total, weight = Local(), Local()
                    total[0], weight[0] = real(0), real(0)
                    with T.serial(count) as d:
                        share = bind(tirx.exp(scores[int32(d)] - largest[0]))
                        weight[0] = weight[0] + share
                        total[0] = total[0] + share * v[i - int32(d), first + c]
                    store(out, total[0] / weight[0], i, first + c)

    rows = activations(gpu, "n", hidden)
    own = f32(window, hidden)
    return kernel(body, q=rows, k=rows, v=rows, b=own, places=i32("n"), out=rows)


def depthwise_conv(gpu: Gpu, row: Sizes, weight: Sizes, positions: Sizes) -> PrimFunc:
    """(x f32[n, channels], w f32[taps, channels], positions i32[n]) -> f32[n, channels]: see
    `ops.depthwise_conv`."""
    taps, channels = weight

    def body(x: Expr, w: Expr, places: Expr, out: Expr) -> None:
        def element(i: Expr, column: Expr) -> None:
            total, count = Local(), bind(T.min(places[i] + 1, taps))
            total[0] = real(0)
            with T.serial(count) as d:
                past = bind(int32(d))
                total[0] = total[0] + x[i - past, column] * w[taps - 1 - past, column]
            store(out, total[0], i, column)

        each_element(gpu, x.shape[0], channels, element)

    rows = activations(gpu, "n", channels)
    return kernel(body, x=rows, w=f32(taps, channels), places=i32("n"), out=rows)
