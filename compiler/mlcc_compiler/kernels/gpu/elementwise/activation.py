"""Elementwise GPU kernels, a thread per element: activations, sums, scaling, row copies.
float32.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import bind, ceil_div, int32, launch, real, when
from mlcc_compiler.kernels.step import Step
from mlcc_compiler.kernels.step_arguments import paged_groups, read_step_arguments

_ERFC = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def each_element(gpu: Gpu, rows: Expr, width: int, body: Callable[[Expr, Expr], None]) -> None:
    """Emit body(row, column) for every element of [rows, width], a thread each."""
    with launch((ceil_div(width, gpu.threads), rows), (gpu.threads,)) as (block, row, thread):
        column = block * gpu.threads + thread
        with when(column < width):
            body(row, column)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x); e**-x may overflow to infinity, which gives 0."""
    return real(1) / (real(1) + T.exp(real(0) - x))


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent by e**-2|x|: the tanh of some drivers is NaN for large arguments.

    Below 0.25 by its series, as the quotient loses digits there.
    """
    x = bind(x)
    small = bind(T.exp(real(-2) * T.fabs(x)))
    magnitude = (real(1) - small) / (real(1) + small)
    square = bind(x * x)
    series = x * (
        real(1)
        + square
        * (
            real(-1 / 3)
            + square * (real(2 / 15) + square * (real(-17 / 315) + square * real(62 / 2835)))
        )
    )
    signed = T.Select(x < real(0), real(0) - magnitude, magnitude)
    return bind(T.Select(square < real(0.0625), series, signed))


def erfc(x: Expr) -> Expr:
    """For x >= 0: Abramowitz & Stegun 7.1.26, absolute error 1.5e-7."""
    t = bind(real(1) / (real(1) + real(0.3275911) * x))
    total = real(_ERFC[0])
    for c in _ERFC[1:]:
        total = total * t + real(c)
    return total * t * T.exp(real(0) - x * x)


def _gelu(x: Expr) -> Expr:
    x = bind(x)
    tail = erfc(bind(T.fabs(x) * real(0.7071067811865476))) * real(0.5)
    return x * T.Select(x < real(0), tail, real(1) - tail)


def _gelu_tanh(x: Expr) -> Expr:
    x = bind(x)
    inner = real(0.7978845608028654) * (x + real(0.044715) * x * x * x)
    return real(0.5) * x * (real(1) + tanh(inner))


def _silu(x: Expr) -> Expr:
    x = bind(x)
    return x * sigmoid(x)


def _relu2(x: Expr) -> Expr:
    above = bind(tirx.max(x, real(0)))
    return above * above


def _identity(x: Expr) -> Expr:
    return x


ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": sigmoid,
    "relu2": _relu2,
    "identity": _identity,
}


def activated(gpu: Gpu, row: Sizes, kind: str) -> PrimFunc:
    """(x f32[n, width]) -> activation(x)."""

    def body(x: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            store(out, ACTIVATIONS[kind](x[i, j]), i, j)

        each_element(gpu, x.shape[0], row[0], element)

    rows = activations(gpu, "n", *row)
    return kernel(body, x=rows, out=rows)


def gated(gpu: Gpu, row: Sizes, other: Sizes, kind: str) -> PrimFunc:
    """(gate f32[n, inner], up f32[n, inner]) -> activation(gate) * up."""

    def body(gate: Expr, up: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            store(out, ACTIVATIONS[kind](gate[i, j]) * up[i, j], i, j)

        each_element(gpu, gate.shape[0], row[0], element)

    rows = activations(gpu, "n", *row)
    return kernel(body, gate=rows, up=rows, out=rows)


def gated_fused(gpu: Gpu, row: Sizes, kind: str) -> PrimFunc:
    """(gate_up f32[n, 2 * inner]) -> activation(first half) * second half."""
    inner = row[0] // 2

    def body(x: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            store(out, ACTIVATIONS[kind](x[i, j]) * x[i, j + inner], i, j)

        each_element(gpu, x.shape[0], inner, element)

    return kernel(body, gate_up=activations(gpu, "n", 2 * inner), out=activations(gpu, "n", inner))


def softcap(gpu: Gpu, row: Sizes, cap: float) -> PrimFunc:
    """(x f32[n, width]) -> cap * tanh(x / cap)."""

    def body(x: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            store(out, real(cap) * tanh(x[i, j] * real(1 / cap)), i, j)

        each_element(gpu, x.shape[0], row[0], element)

    rows = f32("n", *row)
    return kernel(body, x=rows, out=rows)


def add(gpu: Gpu, row: Sizes, other: Sizes) -> PrimFunc:
    """(x f32[n, width], y f32[n, width]) -> x + y."""

    def body(x: Expr, y: Expr, out: Expr) -> None:
        each_element(gpu, x.shape[0], row[0], lambda i, j: store(out, x[i, j] + y[i, j], i, j))

    rows = activations(gpu, "n", *row)
    return kernel(body, x=rows, y=rows, out=rows)


def scale(gpu: Gpu, row: Sizes, factor: float) -> PrimFunc:
    """(x f32[n, width]) -> x * factor."""

    def body(x: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            store(out, x[i, j] * real(factor), i, j)

        each_element(gpu, x.shape[0], row[0], element)

    rows = activations(gpu, "n", *row)
    return kernel(body, x=rows, out=rows)


def scale_columns(gpu: Gpu, row: Sizes, columns: Sizes) -> PrimFunc:
    """(x f32[n, width], factors f32[width] or f32[1]) -> x * factors."""

    def body(x: Expr, factors: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            store(out, x[i, j] * factors[0 if columns == (1,) else j], i, j)

        each_element(gpu, x.shape[0], row[0], element)

    rows = activations(gpu, "n", *row)
    return kernel(body, x=rows, factors=f32(*columns), out=rows)


def subtract_columns(gpu: Gpu, row: Sizes, columns: Sizes) -> PrimFunc:
    """(x f32[n, width], columns f32[width]) -> x - columns."""

    def body(x: Expr, columns: Expr, out: Expr) -> None:
        each_element(gpu, x.shape[0], row[0], lambda i, j: store(out, x[i, j] - columns[j], i, j))

    rows = activations(gpu, "n", *row)
    return kernel(body, x=rows, columns=f32(*columns), out=rows)


def clip(gpu: Gpu, row: Sizes, least: Sizes, most: Sizes) -> PrimFunc:
    """(x f32[n, width], least f32[1], most f32[1]) -> x within both."""

    def body(x: Expr, low: Expr, high: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            store(out, tirx.min(tirx.max(x[i, j], low[0]), high[0]), i, j)

        each_element(gpu, x.shape[0], row[0], element)

    rows, bound = activations(gpu, "n", *row), f32(1)
    return kernel(body, x=rows, least=bound, most=bound, out=rows)


def take_rows(gpu: Gpu, row: Sizes, index: Sizes) -> PrimFunc:
    """(x f32[n, width], rows i32[r]) -> f32[r, width] with out[i] = x[rows[i]]."""

    def body(x: Expr, rows: Expr, out: Expr) -> None:
        each_element(gpu, rows.shape[0], row[0], lambda i, j: store(out, x[rows[i], j], i, j))

    return kernel(
        body, x=activations(gpu, "n", *row), rows=i32("r"), out=activations(gpu, "r", *row)
    )


def read_step(gpu: Gpu, layout: StepLayout) -> PrimFunc:
    """The kernel of `read_step_arguments`."""
    groups = paged_groups(layout)

    def body(words: Expr, last: Expr, ids: Expr, positions: Expr, rows: Expr, *slots: Expr) -> None:
        step = Step(layout, words)
        tokens, wanted = int32(ids.shape[0]), int32(rows.shape[0])
        longest = tirx.max(ids.shape[0], rows.shape[0])
        with launch((ceil_div(longest, gpu.threads),), (gpu.threads,)) as (block, thread):
            i = bind(block * gpu.threads + thread)
            with when(i < tokens):
                used = bind(i < step.count("tokens"))
                token = bind(T.if_then_else(used, step.token(i, "id"), T.int32(0)))
                sampled = tirx.max(T.int32(-1) - token, T.int32(0))
                store(ids, T.if_then_else(token < 0, last[sampled], token), i)
                position = step.token(i, "position")
                store(positions, T.if_then_else(used, position, T.int32(0)), i)
                for group, out in zip(groups, slots, strict=True):
                    slot = step.token(i, f"slot.{group}")
                    store(out, T.if_then_else(used, slot, T.int32(-1)), i)
            with when(i < wanted):
                row = step.row(i, "token")
                store(rows, T.if_then_else(i < step.count("rows"), row, T.int32(0)), i)

    return kernel(body, **read_step_arguments(layout))
