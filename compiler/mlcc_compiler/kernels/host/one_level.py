"""Compiled kernels of `quantization/one_level.py`'s search, and of codes for all levels.

The same operations in the same order on each group as in numpy, so results are bit-identical.
Vectors are `vectors.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.kernels.frame import Expr, PrimFunc
from mlcc_compiler.kernels.host.vectors import (
    ANY,
    FLOATS,
    LANES,
    Vectors,
    frame,
    intrinsic,
    product,
    rounded,
    spread,
    turned,
)

TINY = np.float32(1e-37)


def fit_affine(group: int, levels: int, middle: int | None, shrunk: tuple[float, ...]) -> PrimFunc:
    """PrimFunc(x[M, group], scale[1, M], zero[1, M]): the best scale, and the zero point: `middle`,
    or, if that is None, an integer from the range."""

    def body(arrays: list[Expr], m: Expr) -> None:
        rows, scale, zero = arrays
        x = turned(rows, group, m)
        full, place = _range(x, group, levels, middle)
        low, high = B.bind(spread(0) - place), B.bind(spread(levels) - place)
        best = Vectors(2)  # the gain and the scale
        best[0], best[1] = spread(-1), full
        for shrink in shrunk:
            steps = B.bind(_inverse(B.bind(full * spread(shrink))))
            of_q = Vectors(2)
            of_q[0], of_q[1] = spread(0), spread(0)
            with B.serial(group) as j:
                q = B.bind(T.min(T.max(rounded(x[j] * steps), low), high))
                of_q[0] = of_q[0] + product(x[j], q)
                of_q[1] = of_q[1] + product(q, q)
            dot, norm = B.bind(of_q[0]), B.bind(of_q[1])
            fitted = B.bind(dot * _inverse(norm))
            gain = B.bind(dot * fitted)
            for i, new in ((1, fitted), (0, gain)):  # the gain last: it decides
                best[i] = T.Select(gain > best[0], new, best[i])
        B.buffer_store(scale, best[1], [0, T.Ramp(m, 1, LANES)])
        B.buffer_store(zero, place, [0, T.Ramp(m, 1, LANES)])

    return frame([(ANY, group)], (1, 1), body)


def _range(x: Vectors, group: int, levels: int, middle: int | None) -> tuple[Expr, Expr]:
    """The scale that covers each group, and its zero point."""
    ends = Vectors(2)
    ends[0], ends[1] = x[0], x[0]
    with B.serial(group - 1) as j:
        ends[0] = T.min(ends[0], x[j + 1])
        ends[1] = T.max(ends[1], x[j + 1])
    low, high = B.bind(ends[0]), B.bind(ends[1])
    if middle is not None:
        largest = T.Select(spread(0) - low > high, low, high)
        return B.bind(largest / spread(-middle)), B.bind(spread(middle))
    low, high = B.bind(T.min(low, spread(0))), B.bind(T.max(high, spread(0)))
    full = B.bind((high - low) / spread(levels))
    return full, B.bind(rounded((spread(0) - low) * _inverse(full)))


def _inverse(x: Expr) -> Expr:
    """1 / x, and 0 where x is 0 or its inverse overflows."""
    tiny = intrinsic("llvm.fabs", x) < spread(TINY)
    return T.Select(tiny, spread(0), spread(1) / T.Select(tiny, spread(1), x))


def largest(group: int) -> PrimFunc:
    """PrimFunc(x[M, group], largest[1, M]): the largest magnitude of each group."""

    def body(arrays: list[Expr], m: Expr) -> None:
        rows, found = arrays
        x, peak = turned(rows, group, m), Vectors(1)
        peak[0] = spread(0)
        with B.serial(group) as j:
            peak[0] = T.max(peak[0], intrinsic("llvm.fabs", x[j]))
        B.buffer_store(found, peak[0], [0, T.Ramp(m, 1, LANES)])

    return frame([(ANY, group)], (1,), body)


def codes(group: int, least: int, most: int) -> PrimFunc:
    """PrimFunc(x[M, group], low[M, 1], inverse[M, 1], codes u8[M, group]): (x - low) * inverse,
    rounded, clipped to least .. most, minus `least`."""

    def code(x: Expr, start: Expr, per_step: Expr) -> Expr:
        whole = rounded((x - start) * per_step)
        return T.min(T.max(whole, spread(least)), spread(most)) - spread(least)

    return _each(group, 2, code)


def places(group: int, between: tuple[float, ...]) -> PrimFunc:
    """PrimFunc(x[M, group], inverse[M, 1], codes u8[M, group]): number of `between` that are less
    than x * inverse."""

    def place(x: Expr, per_step: Expr) -> Expr:
        value, found = B.bind(x * per_step), spread(0)
        for bound in between:
            found = B.bind(found + T.Select(value > spread(bound), spread(1), spread(0)))
        return found

    return _each(group, 1, place)


def _each(group: int, numbers: int, code: Callable[..., Expr]) -> PrimFunc:
    """PrimFunc(x[M, group], `numbers` numbers per group [M, 1], codes u8[M, group]). A group is a
    row, as weights and codes lie, so nothing is transposed."""
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=False):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        m = T.int64()
        rows = [(group, "float32"), *[(1, "float32")] * numbers, (group, "uint8")]
        handles = [B.arg(f"a{i}", T.handle()) for i in range(len(rows))]
        x, *others, found = (
            B.match_buffer(h, (m, n), kind) for h, (n, kind) in zip(handles, rows, strict=True)
        )
        with B.serial(m) as row:
            own = [B.bind(T.Broadcast(other[row, 0], LANES)) for other in others]
            with B.serial(group // LANES) as j:
                at = [row, j * LANES]
                whole = T.Cast(f"int32x{LANES}", code(x.vload(at, FLOATS), *own))
                narrow = T.Cast(f"uint8x{LANES}", whole)
                B.buffer_store(found, narrow, [row, T.Ramp(j * LANES, 1, LANES)])
    return builder.get()
