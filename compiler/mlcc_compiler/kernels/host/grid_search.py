"""Compiled kernels of `quantization/grid_search.py`'s searches.

The same operations in the same order on each group as in numpy, so results are bit-identical,
without a trip to memory for each. Mean squares of inputs come transposed, as the groups of a row
are the same for all rows. Candidates are arguments; vectors are `vectors.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels.frame import Expr, PrimFunc
from mlcc_compiler.kernels.host.vectors import (
    ANY,
    FLOATS,
    LANES,
    Vectors,
    frame,
    intrinsic,
    looked_up,
    product,
    rounded,
    spread,
    turned,
)
from mlcc_compiler.quantization.schemes import Scheme

TINY = np.float32(1e-30)


class _Powers:
    """Mean squares of the inputs of a vector of groups, by column."""

    def __init__(self, sizes: Expr, m: Expr) -> None:
        self.sizes, self.row = sizes, B.bind((m // LANES) % sizes.shape[0])

    def __getitem__(self, j: Expr) -> Expr:
        return self.sizes.vload([self.row, j * LANES], FLOATS)


def fit_ranges(group: int, candidates: int, sized: bool) -> PrimFunc:
    """PrimFunc(x[M, group], levels[1, 1 + candidates], scale[1, M], minimum[1, M]), if `sized` with
    powers[P, LANES * group] after the levels. `levels`: the largest code, then the number of levels
    of each candidate. Row v % P of the powers belongs to the v-th LANES groups; its column LANES j
    + i to weight j of group i."""

    def body(arrays: list[Expr], m: Expr) -> None:
        rows, levels, *powers, scale, minimum = arrays
        most = B.bind(T.Broadcast(levels[0, 0], LANES))
        x = turned(rows, group, m)
        weight, wx = Vectors(group), Vectors(group)
        power = _Powers(powers[0], m) if sized else None
        sums = _importances(x, weight, wx, group, power)
        total, sum_x, low, high = (B.bind(each) for each in sums)
        low = B.bind(T.min(low, spread(0)))
        width = B.bind(T.max(high, spread(0)) - low)
        per_width = B.bind(spread(1) / T.max(width, spread(TINY)))
        best = Vectors(3)  # the error, the scale and the minimum
        best[0], best[1], best[2] = spread(np.inf), width / most, low
        with B.serial(candidates) as candidate:
            steps = B.bind(T.Broadcast(levels[0, candidate + 1], LANES) * per_width)
            start = B.bind(product(low, steps))
            of_q = Vectors(3)
            for i in range(3):
                of_q[i] = spread(0)
            with B.serial(group) as j:
                # the bound holds where the twin leaves it out: less than half a level is added
                q = B.bind(T.min(rounded(product(x[j], steps) - start), most))
                wq = B.bind(product(weight[j], q))
                of_q[0] = of_q[0] + wq
                of_q[1] = of_q[1] + product(wq, q)
                of_q[2] = of_q[2] + product(wx[j], q)
            sum_q, sum_qq, sum_qx = (B.bind(of_q[i]) for i in range(3))
            determinant = product(total, sum_qq) - product(sum_q, sum_q)
            determinant = B.bind(T.max(determinant, spread(TINY)))
            both = B.bind((product(total, sum_qx) - product(sum_x, sum_q)) / determinant)
            base = B.bind((product(sum_qq, sum_x) - product(sum_q, sum_qx)) / determinant)
            alone = B.bind(sum_qx / T.max(sum_qq, spread(TINY)))
            s = B.bind(T.Select(base > spread(0), alone, both))
            base = B.bind(T.Select(base > spread(0), spread(0), base))
            two = spread(2)
            error = product(two, product(base, sum_q) - sum_qx)
            error = B.bind(product(s, product(s, sum_qq) + error))
            more = product(base, total) - product(two, sum_x)
            error = B.bind(error + product(base, more))
            error = B.bind(T.Select(s > spread(0), error, spread(np.inf)))
            for i, new in ((2, base), (1, s), (0, error)):  # the error last: it decides
                best[i] = T.Select(error < best[0], new, best[i])
        B.buffer_store(scale, best[1], [0, T.Ramp(m, 1, LANES)])
        B.buffer_store(minimum, best[2], [0, T.Ramp(m, 1, LANES)])

    sizes = [(ANY, group * LANES)] if sized else []
    return frame([(ANY, group), (1, 1 + candidates), *sizes], (1, 1), body)


def fit_symmetric(group: int, middle: int, shrunk: tuple[float, ...], sized: bool) -> PrimFunc:
    """PrimFunc(x[M, group], scale[1, M]), if `sized` with powers as in `fit_ranges` after x."""

    def nearest(q: Expr) -> Expr:
        return T.min(T.max(rounded(q), spread(-middle)), spread(middle - 1))

    return _fit_scale(group, -middle, [1 / shrink for shrink in shrunk], sized, nearest)


def fit_curve(
    group: int,
    scheme: Scheme,
    inverse: tuple[float, ...],
    stretched: tuple[float, ...],
    sized: bool,
) -> PrimFunc:
    """`fit_symmetric` for values on the scheme's curve."""
    assert scheme.curve is not None
    a, c = map(np.float32, scheme.curve)
    n, middle, one = np.float32(2**scheme.bits), np.float32(scheme.levels / 2), np.float32(1)
    first, second, third = map(spread, inverse)

    def nearest(q: Expr) -> Expr:
        s = B.bind(product(q + spread(c), spread(one / a)))
        square = B.bind(product(s, s))
        t = product(s, product(product(third, square) + second, square) + first)
        place = product(t, spread(n)) + spread(middle)
        place = B.bind(T.min(T.max(place, spread(0)), spread(scheme.levels)))
        found = looked_up(scheme.table, place)
        if found is not None:
            return found
        t = B.bind(product(rounded(place) - spread(middle), spread(one / n)))
        value = product(spread(2 * a), product(t, t)) + spread(a)
        value = product(t, value) + spread(np.float32(0.5) - c)
        return intrinsic("llvm.floor", value)

    factors = [sign / stretch for stretch in stretched for sign in (1, -1)]
    return _fit_scale(group, scheme.table[0], factors, sized, nearest)


def _fit_scale(
    group: int, end: float, factors: Sequence[float], sized: bool, nearest: Callable[[Expr], Expr]
) -> PrimFunc:
    """Candidates are the scale at which a group reaches the value `end`, divided by each of
    `factors`; the best is fitted to the values that it gives."""

    def body(arrays: list[Expr], m: Expr) -> None:
        rows, *powers, scale = arrays
        x = turned(rows, group, m)
        weight, wx = Vectors(group), Vectors(group)
        power = _Powers(powers[0], m) if sized else None
        _, _, low, high = (B.bind(each) for each in _importances(x, weight, wx, group, power))
        largest = T.Select(spread(0) - low > high, low, high)
        full = B.bind(largest / spread(end))
        safe = B.bind(T.Select(full == spread(0), spread(1), full))
        best = Vectors(2)  # the gain and the scale
        best[0], best[1] = spread(-1), full
        for factor in factors:
            steps = B.bind(spread(np.float32(factor)) / safe)
            of_q = Vectors(2)
            of_q[0], of_q[1] = spread(0), spread(0)
            with B.serial(group) as j:
                q = B.bind(nearest(product(x[j], steps)))
                of_q[0] = of_q[0] + product(product(weight[j], q), q)
                of_q[1] = of_q[1] + product(wx[j], q)
            sum_qq, sum_qx = B.bind(of_q[0]), B.bind(of_q[1])
            fitted = B.bind(sum_qx / T.max(sum_qq, spread(TINY)))
            gain = B.bind(sum_qx * fitted)
            for i, new in ((1, fitted), (0, gain)):  # the gain last: it decides
                best[i] = T.Select(gain > best[0], new, best[i])
        B.buffer_store(scale, best[1], [0, T.Ramp(m, 1, LANES)])

    sizes = [(ANY, group * LANES)] if sized else []
    return frame([(ANY, group), *sizes], (1,), body)


def _importances(
    x: Vectors, weight: Vectors, wx: Vectors, group: int, power: _Powers | None
) -> tuple[Expr, Expr, Expr, Expr]:
    """Fill in the error weights, |x| + rms or the inputs' mean squares, and their products with x;
    returns the sums of both, and the least and the largest x."""
    state = Vectors(5)
    first = B.bind(x[0])
    for i, value in enumerate((product(first, first), first, first, spread(0), spread(0))):
        state[i] = value
    with B.serial(group - 1) as j:
        value = B.bind(x[j + 1])
        state[0] = state[0] + product(value, value)
        state[1] = T.min(state[1], value)
        state[2] = T.max(state[2], value)
    mean = B.bind(state[0] / spread(group))
    rms = B.bind(intrinsic("llvm.sqrt", mean))
    with B.serial(group) as j:
        value = B.bind(x[j])
        if power is None:
            own = B.bind(intrinsic("llvm.fabs", value) + rms)
        else:
            own = intrinsic("llvm.sqrt", product(value, value) + mean)
            own = B.bind(product(own, power[j]))
        weight[j] = own
        weighted = B.bind(product(own, value))
        wx[j] = weighted
        state[3] = state[3] + own
        state[4] = state[4] + weighted
    return state[3], state[4], state[1], state[2]
