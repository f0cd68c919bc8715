"""Root-mean-square normalisation (Zhang & Sennrich, 2019), alone, with the residual sum before it,
and per attention head; and LayerNorm (Ba et al., 2016). CPU kernels in f32.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind, each, span, spread, sum_lanes
from mlcc_compiler.kernels.cpu.linear.amx_outputs import WRITES_LAST
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, kernel, store

_UNROLL = 4  # independent sums, to hide the latency of an addition


def rms_norm(isa: Isa, row: Sizes, weight: Sizes, eps: float, offset: float) -> PrimFunc:
    """(x f32[n, size], w f32[size]) -> x * rsqrt(mean(x**2) + eps) * (offset + w).

    Of x f32[n, heads, size] each head is normalised by itself.
    """

    def body(x: Expr, w: Expr, y: Expr) -> None:
        normalise = Normalise(weight[0], eps, isa.lanes, offset)

        def one(i: Expr) -> None:
            normalise(x, w, y, i)

        def heads(i: Expr) -> None:
            with T.serial(row[0]) as h:
                normalise(x, w, y, i, h)

        each_row(x.shape[0], prod(row), one if len(row) == 1 else heads)

    rows = activations(isa, "n", *row)
    return _writing(isa, kernel(body, x=rows, w=f32(*weight), y=rows))


def _writing(isa: Isa, made: PrimFunc) -> PrimFunc:
    """The kernel, which may write tiles of AMX in the place of its last output."""
    return made.with_attr(WRITES_LAST, True) if isa.has_tiles else made


def add_rms_norm(
    isa: Isa, row: Sizes, other: Sizes, weight: Sizes, eps: float, offset: float
) -> PrimFunc:
    """(x f32[n, hidden], residual f32[n, hidden], w f32[hidden]) -> (x + residual, its norm)."""
    (hidden,) = row

    def body(x: Expr, residual: Expr, w: Expr, total: Expr, y: Expr) -> None:
        normalise = Normalise(hidden, eps, isa.lanes, offset)

        def one(i: Expr) -> None:
            def add(j: Expr, k: int) -> None:
                at = span(j, k)
                store(total, x[i, at] + residual[i, at], i, at)

            each(hidden, isa.lanes, add)
            normalise(total, w, y, i)

        each_row(x.shape[0], hidden, one)

    rows = activations(isa, "n", hidden)
    made = kernel(body, x=rows, residual=rows, w=f32(*weight), total=rows, y=rows)
    return _writing(isa, made)


def layer_norm(isa: Isa, row: Sizes, weight: Sizes, *rest: Any) -> PrimFunc:
    """(x f32[n, size], w f32[size], optional bias f32[size]) -> (x - mean(x)) * rsqrt(variance(x) +
    eps) * (offset + w) + bias. rest: the bias's sizes if any, eps, offset."""
    *bias, eps, offset = rest
    (size,) = row

    def body(x: Expr, w: Expr, *others: Expr) -> None:
        *b, y = others
        normalise = Normalise(size, eps, isa.lanes, offset)

        def one(i: Expr) -> None:
            mean = normalise.mean(lambda j, k: x[i, span(j, k)])

            def centred(j: Expr, k: int) -> Expr:
                return x[i, span(j, k)] - spread(mean, k)

            scale = normalise.scale(centred)

            def write(j: Expr, k: int) -> None:
                value = centred(j, k) * spread(scale, k) * normalise.weight(w, j, k)
                store(y, value + b[0][span(j, k)] if b else value, i, span(j, k))

            each(size, isa.lanes, write)

        each_row(x.shape[0], size, one)

    rows = activations(isa, "n", size)
    biases = {"b": f32(size)} if bias else {}
    return kernel(body, x=rows, w=f32(*weight), **biases, y=rows)


class Normalise:
    """Emits y[at] = x[at] * scale * weight for one row of `size` elements."""

    def __init__(self, size: int, eps: float, lanes: int, offset: float) -> None:
        self.size, self.eps, self.lanes, self.offset = size, eps, lanes, offset

    def __call__(self, x: Expr, w: Expr, y: Expr, *at: Expr) -> None:
        def load(j: Expr, k: int) -> Expr:
            where = (*at, span(j, k))
            return x[where]

        scale = self.scale(load)

        def write(j: Expr, k: int) -> None:
            value = load(j, k) * spread(scale, k) * self.weight(w, j, k)
            store(y, value, *at, span(j, k))

        each(self.size, self.lanes, write)

    def weight(self, w: Expr, j: Expr, k: int) -> Expr:
        """The factor of k elements from j on."""
        return w[span(j, k)] + spread(self.offset, k) if self.offset else w[span(j, k)]

    def scale(self, load: Callable[[Expr, int], Expr]) -> Expr:
        """Emit rsqrt(mean(load(i) ** 2) + eps) over the row."""

        def square(j: Expr, k: int) -> Expr:
            x = bind(load(j, k))
            return x * x

        return bind(T.float32(1) / T.sqrt(self.mean(square) + T.float32(self.eps)))

    def mean(self, load: Callable[[Expr, int], Expr]) -> Expr:
        """Emit mean(load(i)) over the row."""
        lanes = self.lanes
        steps, rest = divmod(self.size, lanes)
        blocks, tail = divmod(steps, _UNROLL)
        sums, total = Registers(_UNROLL, lanes), Registers(1, 1)

        def add(first: Expr, count: int) -> None:
            for u in range(count):
                sums[u] = sums[u] + load((first + u) * lanes, lanes)

        for u in range(_UNROLL):
            sums[u] = spread(0.0, lanes)
        with T.serial(blocks) as j:
            add(j * _UNROLL, _UNROLL)
        add(blocks * _UNROLL, tail)
        total[0] = sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]))
        with T.serial(rest) as j:
            total[0] = total[0] + load(steps * lanes + j, 1)
        return bind(total[0] * T.float32(1 / self.size))
