"""Kernels of Conformers (Gulati et al., 2020) on the GPU: attention, convolution and norms over the
last rows of a row's own text, and the row behind.
"""

from __future__ import annotations

from collections.abc import Callable

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
from mlcc_compiler.kernels.gpu.elementwise.norm import each_lane
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    barrier,
    bind,
    int32,
    launch,
    real,
    reduce,
    shared,
    when,
    zeros,
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


def group_moments(gpu: Gpu, row: Sizes, present: Sizes, groups: int) -> PrimFunc:
    """(x f32[n, groups * places * channels], here f32[n, groups * places]) -> f32[n, groups * 3]:
    see `ops.group_moments`. A workgroup is one group of one row."""
    (width,), (marks,) = row, present
    channels, size = width // marks, width // groups

    def body(x: Expr, here: Expr, out: Expr) -> None:
        with launch((x.shape[0], groups), (gpu.threads, 1)) as (i, g, lane, _):
            first, place = bind(g * size), bind(g * (marks // groups))

            def sum_of(value: Callable[[Expr], Expr]) -> Expr:
                """Of all numbers that are there."""
                total = zeros(1)

                def take(j: Expr) -> None:
                    total[0] = total[0] + value(x[i, first + j]) * here[i, place + j // channels]

                each_lane(size, gpu.threads, lane, take)
                return reduce(gpu, total[0], add, lane, gpu.threads)

            count = sum_of(lambda found: real(1))
            total = sum_of(lambda found: found)
            mean = bind(total / T.max(count, real(1)))

            def square(found: Expr) -> Expr:
                difference = bind(found - mean)
                return difference * difference

            squares = sum_of(square)
            with when(lane == 0):
                for at, number in enumerate((count, mean, squares)):
                    store(out, number, i, g * 3 + at)

    rows, here = activations(gpu, "n", width), activations(gpu, "n", marks)
    return kernel(body, x=rows, here=here, out=f32("n", 3 * groups))


def cumulative_norm(
    gpu: Gpu, row: Sizes, present: Sizes, moments: Sizes, weight: Sizes, places: Sizes, eps: float
) -> PrimFunc:
    """(x f32[n, groups * places * channels], here f32[n, groups * places], moments f32[n, groups *
    3], w f32[channels], positions i32[n]) -> as x: see `ops.cumulative_norm`. A workgroup is one
    group of one row; one thread sums the moments of the text so far."""
    (width,), (marks,), (channels,) = row, present, weight
    groups = moments[0] // 3
    size = width // groups

    def body(x: Expr, here: Expr, parts: Expr, w: Expr, positions: Expr, out: Expr) -> None:
        with launch((x.shape[0], groups), (gpu.threads, 1)) as (i, g, lane, _):
            found = shared((2,))
            with when(lane == 0):
                so_far, start = Cumulative(parts), bind(i - positions[i])
                with T.serial(positions[i]) as before:
                    for of in range(groups):
                        so_far.add(start + int32(before), of)
                with T.serial(g + 1) as of:
                    so_far.add(i, int32(of))
                numbers = bind(T.max(so_far.count[0], real(1)))
                store(found, so_far.total[0] / numbers, 0)
                store(found, real(1) / T.sqrt(so_far.squares[0] / numbers + real(eps)), 1)
            barrier()
            first, place = bind(g * size), bind(g * (marks // groups))
            mean, scale = bind(found[0]), bind(found[1])

            def write(j: Expr) -> None:
                factor = scale * here[i, place + j // channels] * w[j % channels]
                store(out, (x[i, first + j] - mean) * factor, i, first + j)

            each_lane(size, gpu.threads, lane, write)

    rows, here = activations(gpu, "n", width), activations(gpu, "n", marks)
    parts, own = f32("n", *moments), f32(channels)
    return kernel(body, x=rows, here=here, parts=parts, w=own, positions=i32("n"), out=rows)


class Cumulative:
    """Emits the moments of all groups up to one, group by group."""

    def __init__(self, parts: Expr) -> None:
        self.parts = parts
        self.count, self.total, self.squares = zeros(1), zeros(1), zeros(1)

    def add(self, i: Expr, g: Expr) -> None:
        """Add group g of row i."""
        numbers, mean, own = (bind(self.parts[i, g * 3 + at]) for at in range(3))
        self.count[0] = self.count[0] + numbers
        self.total[0] = self.total[0] + numbers * mean
        difference = bind(mean - self.total[0] / T.max(self.count[0], real(1)))
        self.squares[0] = self.squares[0] + own + numbers * difference * difference


def next_rows(gpu: Gpu, row: Sizes, positions: Sizes) -> PrimFunc:
    """(x f32[n, width], positions i32[n]) -> f32[n, width]: see `ops.next_rows`."""
    (width,) = row

    def body(x: Expr, places: Expr, out: Expr) -> None:
        def element(i: Expr, column: Expr) -> None:
            behind = bind(T.min(int32(i) + 1, int32(x.shape[0]) - 1))
            follows = places[behind] == places[i] + 1
            store(out, T.Select(follows, x[behind, column], real(0)), i, column)

        each_element(gpu, x.shape[0], width, element)

    rows = activations(gpu, "n", width)
    return kernel(body, x=rows, places=i32("n"), out=rows)
