"""Elementwise CPU kernels: activations, gated ones, logit softcap, sum, scale. f32 in, f32 out."""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.activations import ACTIVATIONS
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import SERIAL_ELEMENTS
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    bind,
    each,
    prefetch,
    span,
    spread,
    tanh,
)
from mlcc_compiler.kernels.cpu.linear.amx_rows import of_few
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, kernel, store

_CHUNK = 2048  # elements of a row that one task takes


def _chunks(y: Expr, lanes: int, value: Callable[[Expr, Expr, int], Expr]) -> None:
    """Emit y[i, j : j + k] = value(i, j, k) over all of y, in parallel by chunks if worth it."""
    n, row = y.shape[0], int(y.shape[1])
    shares = -(-row // _CHUNK)
    chunk = -(-row // (shares * lanes)) * lanes
    tasks = -(-row // chunk)

    def part(i: Expr, start: Expr, size: int) -> None:
        each(size, lanes, lambda j, k: store(y, value(i, j, k), i, span(j, k)), start)

    with T.If(n * row <= SERIAL_ELEMENTS):
        with T.Then(), T.serial(n) as i:
            part(i, 0, row)
        with T.Else(), T.parallel(n * tasks) as task:
            i, c = bind(T.floordiv(task, tasks)), bind(T.floormod(task, tasks))
            with T.If(c < tasks - 1):
                with T.Then():
                    part(i, c * chunk, chunk)
                with T.Else():
                    part(i, (tasks - 1) * chunk, row - (tasks - 1) * chunk)


def activated(isa: Isa, row: Sizes, kind: str) -> PrimFunc:
    """(x f32[n, width]) -> kind(x); kind: of ACTIVATIONS."""
    activation = ACTIVATIONS[kind]

    def body(x: Expr, y: Expr) -> None:
        _chunks(y, isa.lanes, lambda i, j, k: activation(bind(x[i, span(j, k)])))

    rows = activations(isa, "n", *row)
    return kernel(body, x=rows, y=rows)


def gated(isa: Isa, row: Sizes, other: Sizes, kind: str) -> PrimFunc:
    """(gate f32[n, inner], up f32[n, inner]) -> kind(gate) * up; kind: of ACTIVATIONS."""
    activation = ACTIVATIONS[kind]

    def body(gate: Expr, up: Expr, y: Expr) -> None:
        def value(i: Expr, j: Expr, k: int) -> Expr:
            return activation(bind(gate[i, span(j, k)])) * up[i, span(j, k)]

        _chunks(y, isa.lanes, value)

    rows = activations(isa, "n", *row)
    return kernel(body, gate=rows, up=rows, y=rows)


def gated_fused(isa: Isa, row: Sizes, kind: str) -> PrimFunc:
    """(x f32[n, 2 * inner], gate in the first half of a row, up in the second) -> f32[n, inner]."""
    activation, inner = ACTIVATIONS[kind], row[0] // 2

    def body(x: Expr, y: Expr) -> None:
        def value(i: Expr, j: Expr, k: int) -> Expr:
            if k == isa.lanes:  # two streams, of which hardware foresees neither's next row
                for part in (j, inner + j):
                    T.evaluate(prefetch(T.address_of(x[i + 1, part])))
            return activation(bind(x[i, span(j, k)])) * x[i, span(inner + j, k)]

        _chunks(y, isa.lanes, value)

    return kernel(body, x=activations(isa, "n", 2 * inner), y=activations(isa, "n", inner))


def activated_few(isa: Isa, row: Sizes, kind: str, is_float: bool) -> PrimFunc:
    """`activated` of as few rows as do not use AMX; nothing for more, of which `activated_many`
    makes the tiles."""
    return of_few(activated(isa, row, kind), is_float)


def gated_few(isa: Isa, row: Sizes, kind: str, is_float: bool) -> PrimFunc:
    """`gated_fused` of as few rows as do not use AMX; nothing for more, of which `gated_many`
    makes the tiles."""
    return of_few(gated_fused(isa, row, kind), is_float)


def softcap(isa: Isa, row: Sizes, cap: float) -> PrimFunc:
    """(x f32[n, width]) -> cap * tanh(x / cap)."""

    def body(x: Expr, y: Expr) -> None:
        def value(i: Expr, j: Expr, k: int) -> Expr:
            return tanh(x[i, span(j, k)] * spread(1.0 / cap, k)) * spread(cap, k)

        _chunks(y, isa.lanes, value)

    rows = f32("n", *row)
    return kernel(body, x=rows, y=rows)


def add(isa: Isa, row: Sizes, other: Sizes) -> PrimFunc:
    """(x f32[n, width], y f32[n, width]) -> x + y."""

    def body(x: Expr, y: Expr, out: Expr) -> None:
        _chunks(out, isa.lanes, lambda i, j, k: x[i, span(j, k)] + y[i, span(j, k)])

    rows = activations(isa, "n", *row)
    return kernel(body, x=rows, y=rows, out=rows)


def scale(isa: Isa, row: Sizes, factor: float) -> PrimFunc:
    """(x f32[n, width]) -> factor * x."""

    def body(x: Expr, y: Expr) -> None:
        _chunks(y, isa.lanes, lambda i, j, k: x[i, span(j, k)] * spread(factor, k))

    rows = activations(isa, "n", *row)
    return kernel(body, x=rows, y=rows)


def scale_columns(isa: Isa, row: Sizes, columns: Sizes) -> PrimFunc:
    """(x f32[n, width], factors f32[width] or f32[1]) -> x * factors."""

    def body(x: Expr, factors: Expr, y: Expr) -> None:
        def of(j: Expr, k: int) -> Expr:
            return spread(factors[0], k) if columns == (1,) else factors[span(j, k)]

        _chunks(y, isa.lanes, lambda i, j, k: x[i, span(j, k)] * of(j, k))

    rows = activations(isa, "n", *row)
    return kernel(body, x=rows, factors=f32(*columns), y=rows)


def subtract_columns(isa: Isa, row: Sizes, columns: Sizes) -> PrimFunc:
    """(x f32[n, width], columns f32[width]) -> x - columns."""

    def body(x: Expr, columns: Expr, y: Expr) -> None:
        _chunks(y, isa.lanes, lambda i, j, k: x[i, span(j, k)] - columns[span(j, k)])

    rows = activations(isa, "n", *row)
    return kernel(body, x=rows, columns=f32(*columns), y=rows)


def clip(isa: Isa, row: Sizes, least: Sizes, most: Sizes) -> PrimFunc:
    """(x f32[n, width], least f32[1], most f32[1]) -> x within both."""

    def body(x: Expr, low: Expr, high: Expr, y: Expr) -> None:
        def value(i: Expr, j: Expr, k: int) -> Expr:
            return T.min(T.max(x[i, span(j, k)], spread(low[0], k)), spread(high[0], k))

        _chunks(y, isa.lanes, value)

    rows, bound = activations(isa, "n", *row), f32(1)
    return kernel(body, x=rows, least=bound, most=bound, y=rows)
