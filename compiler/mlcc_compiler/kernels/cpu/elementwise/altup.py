"""Kernels of Gemma 3n on the CPU: several hidden states of a token, mixed with learned coefficients
(AltUp; Baykal et al., 2023), and sparse gates. f32.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.elementwise.norm import Normalise
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    each,
    fit_lanes,
    maximum,
    span,
    spread,
)
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, kernel, store


def mix(
    isa: Isa, row: Sizes, modes: Sizes, coefs: Sizes, parts: int, factor: float, added: float
) -> PrimFunc:
    """(x f32[n, parts * hidden], modes f32[n, a], coefs f32[out * parts, a]) -> f32[n, out *
    hidden]: see `ops.mix`."""
    hidden, (factors, width) = row[0] // parts, coefs
    lanes = fit_lanes(hidden, isa.lanes)

    def body(x: Expr, m: Expr, c: Expr, y: Expr) -> None:
        def token(i: Expr) -> None:
            with T.serial(factors // parts) as j:
                own = Registers(parts, 1)
                for p in range(parts):
                    own[p] = T.float32(0)
                    for a in range(width):
                        own[p] = own[p] + c[j * parts + p, a] * m[i, a]
                    own[p] = own[p] * T.float32(factor) + T.float32(added)
                with T.serial(hidden // lanes) as part:
                    at = bind(part * lanes)
                    total = spread(0.0, lanes)
                    for p in range(parts):
                        total = total + x[i, span(p * hidden + at, lanes)] * spread(own[p], lanes)
                    store(y, total, i, span(j * hidden + at, lanes))

        each_row(x.shape[0], row[0], token)

    out = activations(isa, "n", factors // parts * hidden)
    x = activations(isa, "n", *row)
    return kernel(body, x=x, m=f32("n", *modes), c=f32(*coefs), y=out)


def match_magnitude(isa: Isa, row: Sizes, like: Sizes, least: float) -> PrimFunc:
    """(x f32[n, size], like f32[n, size]) -> x with the root mean square of `like`: see
    `ops.match_magnitude`."""
    (size,) = row

    def body(x: Expr, like: Expr, y: Expr) -> None:
        mean = Normalise(size, 0.0, isa.lanes, 0.0).mean

        def one(i: Expr) -> None:
            def square(of: Expr, j: Expr, k: int) -> Expr:
                value = bind(of[i, span(j, k)])
                return value * value

            own = T.max(mean(lambda j, k: square(x, j, k)), T.float32(least))
            factor = bind(T.sqrt(mean(lambda j, k: square(like, j, k))) / T.sqrt(own))

            def write(j: Expr, k: int) -> None:
                store(y, x[i, span(j, k)] * spread(factor, k), i, span(j, k))

            each(size, isa.lanes, write)

        each_row(x.shape[0], size, one)

    rows = activations(isa, "n", size)
    return kernel(body, x=rows, like=rows, y=rows)


def above(isa: Isa, row: Sizes, deviations: float) -> PrimFunc:
    """(x f32[n, size]) -> max(x - (mean + deviations * standard deviation), 0) per row: see
    `ops.above`."""
    (size,) = row

    def body(x: Expr, y: Expr) -> None:
        over = Normalise(size, 0.0, isa.lanes, 0.0).mean

        def one(i: Expr) -> None:
            mean = over(lambda j, k: x[i, span(j, k)])

            def square(j: Expr, k: int) -> Expr:
                value = bind(x[i, span(j, k)] - spread(mean, k))
                return value * value

            cut = bind(mean + T.sqrt(over(square)) * T.float32(deviations))

            def write(j: Expr, k: int) -> None:
                value = maximum(x[i, span(j, k)] - spread(cut, k), spread(0.0, k))
                store(y, value, i, span(j, k))

            each(size, isa.lanes, write)

        each_row(x.shape[0], size, one)

    rows = activations(isa, "n", size)
    return kernel(body, x=rows, y=rows)
