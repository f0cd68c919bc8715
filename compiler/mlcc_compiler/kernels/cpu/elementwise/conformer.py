"""Kernels of Conformers (Gulati et al., 2020) on the CPU: attention and convolution over the last
rows of a row's own text. f32.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    each,
    exp_falling,
    fit_lanes,
    maximum,
    span,
    spread,
    sum_lanes,
    tanh,
)
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


def relative_attention(
    isa: Isa,
    query: Sizes,
    key: Sizes,
    value: Sizes,
    bias: Sizes,
    positions: Sizes,
    heads: int,
    cap: float,
) -> PrimFunc:
    """(q, k, v f32[n, hidden], bias f32[window, hidden], positions i32[n]) -> f32[n, hidden]: see
    `ops.relative_attention`. A task is one head of one row."""
    (hidden,), (window, _) = query, bias
    head_dim = hidden // heads
    lanes = fit_lanes(head_dim, isa.lanes)
    parts = head_dim // lanes

    def body(q: Expr, k: Expr, v: Expr, b: Expr, places: Expr, out: Expr) -> None:
        with T.parallel(q.shape[0] * heads) as task:
            i, first = bind(T.floordiv(task, heads)), bind(T.floormod(task, heads) * head_dim)
            count = bind(T.min(T.Cast("int64", places[i]) + 1, T.int64(window)))
            scores = T.alloc_buffer((window,), "float32")
            asked, totals = Registers(parts, lanes), Registers(parts, lanes)
            largest, weight = Registers(1, 1), Registers(1, 1)
            for p in range(parts):
                asked[p] = q[i, span(first + p * lanes, lanes)]
                totals[p] = spread(0.0, lanes)
            largest[0], weight[0] = T.float32(-3.0e38), T.float32(0)
            with T.serial(count) as d:
                total = spread(0.0, lanes)
                for p in range(parts):
                    at = span(first + p * lanes, lanes)
                    total = total + asked[p] * (k[i - d, at] + b[d, at])
                score = tanh(sum_lanes(total) * T.float32(1 / cap)) * T.float32(cap)
                store(scores, score, d)
                largest[0] = maximum(largest[0], scores[d])
            with T.serial(count) as d:
                share = exp_falling(scores[d] - largest[0])
                weight[0] = weight[0] + share
                for p in range(parts):
                    found = v[i - d, span(first + p * lanes, lanes)]
                    totals[p] = totals[p] + spread(share, lanes) * found
            for p in range(parts):
                found = totals[p] / spread(weight[0], lanes)
                store(out, found, i, span(first + p * lanes, lanes))

    rows = activations(isa, "n", hidden)
    own = f32(window, hidden)
    return kernel(body, q=rows, k=rows, v=rows, b=own, places=i32("n"), out=rows)


def depthwise_conv(isa: Isa, row: Sizes, weight: Sizes, positions: Sizes) -> PrimFunc:
    """(x f32[n, channels], w f32[taps, channels], positions i32[n]) -> f32[n, channels]: see
    `ops.depthwise_conv`."""
    taps, channels = weight

    def body(x: Expr, w: Expr, places: Expr, out: Expr) -> None:
        def one(i: Expr) -> None:
            count = bind(T.min(T.Cast("int64", places[i]) + 1, T.int64(taps)))

            def part(j: Expr, lanes: int) -> None:
                total, at = Registers(1, lanes), span(j, lanes)
                total[0] = spread(0.0, lanes)
                with T.serial(count) as d:
                    total[0] = total[0] + x[i - d, at] * w[taps - 1 - d, at]
                store(out, total[0], i, at)

            each(channels, isa.lanes, part)

        each_row(x.shape[0], channels, one)

    rows = activations(isa, "n", channels)
    return kernel(body, x=rows, w=f32(taps, channels), places=i32("n"), out=rows)
