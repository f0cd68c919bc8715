"""Routing on the CPU: the choice of experts, and the weighted sum of their outputs."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, exp, fit_lanes, sigmoid, span, spread
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store

TAKEN = T.int32(-(2**31))
"""Below every key."""


def route(isa: Isa, row: Sizes, k: int, score: str, normalise: int, scale: float) -> PrimFunc:
    """(logits f32[n, experts]) -> choice i32[n, k], weights f32[n, k]: see `ops.route`.

    A row's choices are k different experts for any logits.
    """
    (experts,) = row

    def body(logits: Expr, choice: Expr, weights: Expr) -> None:
        def token(i: Expr) -> None:
            keys = T.alloc_buffer((experts,), "int32")
            with T.serial(experts) as e:
                store(keys, key_of(logits[i, e]), e)
            with T.serial(k) as j:
                best = T.alloc_buffer((1,), "int32")
                store(best, T.int32(0), 0)
                with T.serial(experts) as e, T.If(keys[e] > keys[best[0]]), T.Then():
                    store(best, T.Cast("int32", e), 0)
                store(keys, TAKEN, best[0])
                store(choice, best[0], i, j)
            _weigh(logits, choice, weights, i, experts, k, score, normalise, scale)

        each_row(logits.shape[0], experts * (k + 4), token)

    chosen = f32("n", k)
    return kernel(body, logits=f32("n", experts), choice=i32("n", k), weights=chosen)


def key_of(value: Expr) -> Expr:
    """An int32 above TAKEN that orders as the floats do: -0 counts as 0, and a NaN as larger than
    infinity, or smaller than -infinity, by its sign."""
    bits = bind(T.reinterpret("int32", value))
    magnitude = bind(T.bitwise_and(bits, T.int32(0x7FFFFFFF)))
    return T.Select(bits < 0, 0 - magnitude, magnitude)


def _weigh(
    logits: Expr,
    choice: Expr,
    weights: Expr,
    i: Expr,
    experts: int,
    k: int,
    score: str,
    normalise: int,
    scale: float,
) -> None:
    """Emit the weights of row i's choice, whose first is the largest logit."""
    total = T.alloc_buffer((1,), "float32")
    store(total, T.float32(0), 0)

    def value(e: Expr) -> Expr:
        if score == "sigmoid":
            return sigmoid(logits[i, e])
        return exp(logits[i, e] - logits[i, choice[i, 0]])

    if score == "softmax" and not normalise:
        with T.serial(experts) as e:
            store(total, total[0] + value(e), 0)
    with T.serial(k) as j:
        store(weights, value(choice[i, j]), i, j)
        if normalise:
            store(total, total[0] + weights[i, j], 0)
    divided = normalise or score == "softmax"
    factor = bind(T.float32(scale) / total[0] if divided else T.float32(scale))
    with T.serial(k) as j:
        store(weights, weights[i, j] * factor, i, j)


def combine(isa: Isa, row: Sizes, chosen: Sizes) -> PrimFunc:
    """(x f32[n, k * hidden], weights f32[n, k]) -> f32[n, hidden]."""
    (k,) = chosen
    hidden = row[0] // k
    lanes = fit_lanes(hidden, isa.lanes)

    def body(x: Expr, weights: Expr, y: Expr) -> None:
        def token(i: Expr) -> None:
            with T.serial(hidden // lanes) as part:
                at = bind(part * lanes)
                total = x[i, span(at, lanes)] * spread(weights[i, 0], lanes)
                for j in range(1, k):
                    other = x[i, span(at + j * hidden, lanes)]
                    total = total + other * spread(weights[i, j], lanes)
                store(y, total, i, span(at, lanes))

        each_row(x.shape[0], row[0], token)

    return kernel(
        body, x=activations(isa, "n", *row), weights=f32("n", k), y=activations(isa, "n", hidden)
    )
