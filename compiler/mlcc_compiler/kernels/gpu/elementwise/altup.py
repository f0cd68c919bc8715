"""Kernels of Gemma 3n on the GPU: several hidden states of a token, mixed with learned coefficients
(AltUp; Baykal et al., 2023), and sparse gates.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element
from mlcc_compiler.kernels.gpu.elementwise.norm import each_lane, row_mean
from mlcc_compiler.kernels.gpu.workgroup import bind, int32, launch, real


def mix(
    gpu: Gpu, row: Sizes, modes: Sizes, coefs: Sizes, parts: int, factor: float, added: float
) -> PrimFunc:
    """(x f32[n, parts * hidden], modes f32[n, a], coefs f32[out * parts, a]) -> f32[n, out *
    hidden]: see `ops.mix`."""
    hidden, (factors, width) = row[0] // parts, coefs
    out = factors // parts * hidden

    def body(x: Expr, m: Expr, c: Expr, y: Expr) -> None:
        def element(i: Expr, column: Expr) -> None:
            j, within = bind(int32(column) // hidden), bind(int32(column) % hidden)
            total = real(0)
            for p in range(parts):
                own = real(0)
                for a in range(width):
                    own = own + c[j * parts + p, a] * m[i, a]
                own = own * real(factor) + real(added)
                total = total + x[i, within + p * hidden] * own
            store(y, total, i, column)

        each_element(gpu, x.shape[0], out, element)

    x, y = activations(gpu, "n", *row), activations(gpu, "n", out)
    return kernel(body, x=x, m=f32("n", *modes), c=f32(*coefs), y=y)


def match_magnitude(gpu: Gpu, row: Sizes, like: Sizes, least: float) -> PrimFunc:
    """(x f32[n, size], like f32[n, size]) -> x with the root mean square of `like`: see
    `ops.match_magnitude`. A workgroup per row."""
    (size,) = row

    def body(x: Expr, like: Expr, y: Expr) -> None:
        with launch((x.shape[0],), (gpu.threads,)) as (i, lane):

            def mean(of: Expr) -> Expr:
                def square(j: Expr) -> Expr:
                    value = bind(of[i, j])
                    return value * value

                return row_mean(gpu, square, size, lane, gpu.threads)

            own = T.max(mean(x), real(least))
            factor = bind(T.sqrt(mean(like)) / T.sqrt(own))
            each_lane(size, gpu.threads, lane, lambda j: store(y, x[i, j] * factor, i, j))

    rows = activations(gpu, "n", size)
    return kernel(body, x=rows, like=rows, y=rows)


def above(gpu: Gpu, row: Sizes, deviations: float) -> PrimFunc:
    """(x f32[n, size]) -> max(x - (mean + deviations * standard deviation), 0) per row: see
    `ops.above`. A workgroup per row."""
    (size,) = row

    def body(x: Expr, y: Expr) -> None:
        with launch((x.shape[0],), (gpu.threads,)) as (i, lane):
            mean = row_mean(gpu, lambda j: x[i, j], size, lane, gpu.threads)

            def square(j: Expr) -> Expr:
                value = bind(x[i, j] - mean)
                return value * value

            variance = row_mean(gpu, square, size, lane, gpu.threads)
            cut = bind(mean + T.sqrt(variance) * real(deviations))
            each_lane(
                size, gpu.threads, lane, lambda j: store(y, T.max(x[i, j] - cut, real(0)), i, j)
            )

    rows = activations(gpu, "n", size)
    return kernel(body, x=rows, y=rows)
