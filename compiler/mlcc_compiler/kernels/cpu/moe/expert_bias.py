"""Per-expert vectors on the CPU: gpt-oss's biases and clamped SwiGLU, Gemma 4's factors."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, fit_lanes, sigmoid, span, spread
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store


def add_expert_bias(
    isa: Isa, row: Sizes, chosen: Sizes, bias: Sizes, experts: int, kinds: int
) -> PrimFunc:
    """(x f32[n, kinds * k * out], choice i32[n, k], bias f32[kinds * experts * out]) -> x with the
    biases: see `ops.add_expert_bias`."""
    (width,), (k,) = row, chosen
    out = width // (kinds * k)
    lanes = fit_lanes(out, isa.lanes)

    def body(x: Expr, choice: Expr, biases: Expr, y: Expr) -> None:
        def token(i: Expr) -> None:
            with T.serial(kinds * k) as slot:
                expert = bind(T.Cast("int64", choice[i, T.floormod(slot, k)]))
                first = bind((T.floordiv(slot, k) * experts + expert) * out)
                with T.serial(out // lanes) as part:
                    at = bind(slot * out + part * lanes)
                    own = biases[span(first + part * lanes, lanes)]
                    store(y, x[i, span(at, lanes)] + own, i, span(at, lanes))

        each_row(x.shape[0], width, token)

    rows = activations(isa, "n", width)
    return kernel(body, x=rows, choice=i32("n", k), biases=f32(*bias), y=rows)


def scale_chosen(isa: Isa, row: Sizes, chosen: Sizes, factors: Sizes) -> PrimFunc:
    """(weights f32[n, k], choice i32[n, k], factors f32[experts]) -> weights f32[n, k], each times
    its expert's."""

    def body(x: Expr, choice: Expr, own: Expr, y: Expr) -> None:
        with T.grid(x.shape[0], row[0]) as (i, j):
            store(y, x[i, j] * own[T.Cast("int64", choice[i, j])], i, j)

    rows = f32("n", *row)
    return kernel(body, x=rows, choice=i32("n", *chosen), own=f32(*factors), y=rows)


def clamped_swiglu(isa: Isa, row: Sizes, alpha: float, limit: float) -> PrimFunc:
    """(x f32[n, 2 * inner], gate in the first half of a row, up in the second) -> f32[n, inner]."""
    inner = row[0] // 2
    lanes = fit_lanes(inner, isa.lanes)

    def body(x: Expr, y: Expr) -> None:
        def token(i: Expr) -> None:
            with T.serial(inner // lanes) as part:
                at = bind(part * lanes)
                most, least = spread(limit, lanes), spread(-limit, lanes)
                gate, up = bind(x[i, span(at, lanes)]), bind(x[i, span(inner + at, lanes)])
                gate = bind(T.Select(gate > most, most, gate))  # a NaN stays one
                up = T.Select(up > most, most, T.Select(up < least, least, up))
                value = gate * sigmoid(gate * spread(alpha, lanes)) * (up + spread(1.0, lanes))
                store(y, value, i, span(at, lanes))

        each_row(x.shape[0], row[0] * 4, token)

    return kernel(body, x=activations(isa, "n", 2 * inner), y=activations(isa, "n", inner))
