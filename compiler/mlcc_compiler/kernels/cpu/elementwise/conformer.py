"""Kernels of Conformers (Gulati et al., 2020) on the CPU: attention, convolution and norms over the
last rows of a row's own text, and the row behind. f32.
"""

from __future__ import annotations

from collections.abc import Callable

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


def group_moments(isa: Isa, row: Sizes, present: Sizes, groups: int) -> PrimFunc:
    """(x f32[n, groups * places * channels], here f32[n, groups * places]) -> f32[n, groups * 3]:
    see `ops.group_moments`."""
    (width,), (marks,) = row, present
    channels, places = width // marks, marks // groups
    lanes = fit_lanes(channels, isa.lanes)

    def body(x: Expr, here: Expr, out: Expr) -> None:
        def one(i: Expr) -> None:
            with T.serial(groups) as g:
                first, count = bind(g * places), Registers(1, 1)

                def sum_of(value: Callable[[Expr], Expr]) -> Expr:
                    """Of all numbers that are there."""
                    sums = Registers(1, lanes)
                    sums[0], count[0] = spread(0.0, lanes), T.float32(0)
                    with T.serial(places) as p:
                        mark = bind(here[i, first + p])
                        count[0] = count[0] + mark * T.float32(channels)
                        with T.serial(channels // lanes) as c:
                            at = span((first + p) * channels + c * lanes, lanes)
                            sums[0] = sums[0] + value(x[i, at]) * spread(mark, lanes)
                    return sum_lanes(sums[0])

                total = sum_of(lambda found: found)
                mean = bind(total / maximum(count[0], T.float32(1)))

                def square(found: Expr) -> Expr:
                    difference = bind(found - spread(mean, lanes))
                    return difference * difference

                for at, number in enumerate((count[0], mean, sum_of(square))):
                    store(out, number, i, g * 3 + at)

        each_row(x.shape[0], width, one)

    rows, here = activations(isa, "n", width), activations(isa, "n", marks)
    return kernel(body, x=rows, here=here, out=f32("n", 3 * groups))


def cumulative_norm(
    isa: Isa, row: Sizes, present: Sizes, moments: Sizes, weight: Sizes, places: Sizes, eps: float
) -> PrimFunc:
    """(x f32[n, groups * places * channels], here f32[n, groups * places], moments f32[n, groups *
    3], w f32[channels], positions i32[n]) -> as x: see `ops.cumulative_norm`. Each row sums the
    moments of its text by itself: they are few, and rows need not wait for each other."""
    (width,), (marks,), (channels,) = row, present, weight
    groups = moments[0] // 3
    lanes = fit_lanes(channels, isa.lanes)
    one_group = marks // groups

    def body(x: Expr, here: Expr, parts: Expr, w: Expr, positions: Expr, out: Expr) -> None:
        def one(i: Expr) -> None:
            so_far = Cumulative(parts)
            before = bind(T.Cast("int64", positions[i]))
            with T.serial(before) as k, T.serial(groups) as g:
                so_far.add(i - before + k, g)
            with T.serial(groups) as g:
                so_far.add(i, g)
                mean, scale = so_far.mean_and_scale(eps)
                with T.serial(one_group) as p:
                    place = bind(g * one_group + p)
                    factor = bind(scale * here[i, place])
                    with T.serial(channels // lanes) as c:
                        at = span(place * channels + c * lanes, lanes)
                        found = (x[i, at] - spread(mean, lanes)) * spread(factor, lanes)
                        store(out, found * w[span(c * lanes, lanes)], i, at)

        each_row(x.shape[0], width, one)

    rows, here = activations(isa, "n", width), activations(isa, "n", marks)
    parts, own = f32("n", *moments), f32(channels)
    return kernel(body, x=rows, here=here, parts=parts, w=own, positions=i32("n"), out=rows)


class Cumulative:
    """Emits the moments of all groups up to one, group by group."""

    def __init__(self, parts: Expr) -> None:
        self.parts = parts
        self.count, self.total, self.squares = (Registers(1, 1) for _ in range(3))
        for each_sum in (self.count, self.total, self.squares):
            each_sum[0] = T.float32(0)

    def add(self, i: Expr, g: Expr) -> None:
        """Add group g of row i."""
        numbers, mean, own = (bind(self.parts[i, g * 3 + at]) for at in range(3))
        self.count[0] = self.count[0] + numbers
        self.total[0] = self.total[0] + numbers * mean
        difference = bind(mean - self.total[0] / maximum(self.count[0], T.float32(1)))
        self.squares[0] = self.squares[0] + own + numbers * difference * difference

    def mean_and_scale(self, eps: float) -> tuple[Expr, Expr]:
        """The mean so far, and the reciprocal deviation."""
        numbers = bind(maximum(self.count[0], T.float32(1)))
        variance = self.squares[0] / numbers
        scale = bind(T.float32(1) / T.sqrt(variance + T.float32(eps)))
        return bind(self.total[0] / numbers), scale


def next_rows(isa: Isa, row: Sizes, positions: Sizes) -> PrimFunc:
    """(x f32[n, width], positions i32[n]) -> f32[n, width]: see `ops.next_rows`."""
    (width,) = row

    def body(x: Expr, places: Expr, out: Expr) -> None:
        def one(i: Expr) -> None:
            behind = bind(T.min(i + 1, x.shape[0] - 1))
            follows = bind(T.Cast("float32", places[behind] == places[i] + 1))

            def part(j: Expr, lanes: int) -> None:
                at = span(j, lanes)
                there = spread(follows, lanes) > spread(0.0, lanes)
                store(out, T.Select(there, x[behind, at], spread(0.0, lanes)), i, at)

            each(width, isa.lanes, part)

        each_row(x.shape[0], width, one)

    rows = activations(isa, "n", width)
    return kernel(body, x=rows, places=i32("n"), out=rows)
