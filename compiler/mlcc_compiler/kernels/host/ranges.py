"""The searches of `quantization/ranges.py` as kernels for the machine that compiles: the same
operations in the same order on each group, so the same bits, without a trip to memory for each.

Weights are [M, group], as they lie in a matrix, M a whole number of vectors. A vector holds as many
groups, whose weights are turned round for it and, with what they weigh, stay in the first-level
cache while the candidates are tried. Sizes of inputs come turned round already, as the groups of a
row are the same for all rows. Equal to the bit only where products and sums are not fused: `build`
compiles for a CPU without fused instructions. Not here: what is a candidate (the caller's numbers),
the two levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from mlcc.machine import cpu_features, machine
from mlcc_compiler._tvm import B, IRBuilder, T, tvm, tvm_ffi
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel_passes

LANES = 8
"""Groups of a vector: AVX2's, the widest that comes without fused products and sums."""
_FLOATS = f"float32x{LANES}"
TINY = np.float32(1e-30)


def runs_here() -> bool:
    """Whether this machine has vectors that do not fuse. On others numpy does the work."""
    return machine() == "x86_64" and "avx2" in cpu_features()


@cache
def build(factory: Callable[..., PrimFunc], *arguments: Any) -> Callable[..., None]:
    """A kernel of this file, compiled; takes numpy arrays that begin at multiples of 64 bytes."""
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64", "mattr": ["+avx2", "-fma"]})
    kernel = factory(*arguments).with_attr("global_symbol", "main")
    # Kept: a function does not keep the module that it came from.
    with kernel_passes():
        compiled = tvm.compile(tvm.IRModule({"main": kernel}), target=target)
    main = compiled["main"]

    def call(*arrays: Any, module: Any = compiled) -> None:
        main(*(tvm_ffi.from_dlpack(array, require_alignment=64) for array in arrays))

    return call


class _Vectors:
    """`count` vectors of floats in memory that is never left."""

    def __init__(self, count: int) -> None:
        self.buffer = B.alloc_buffer((count * LANES,), "float32")

    def __getitem__(self, i: Expr) -> Expr:
        return self.buffer.vload([i * LANES], _FLOATS)

    def __setitem__(self, i: Expr, value: Expr) -> None:
        B.buffer_store(self.buffer, value, [T.Ramp(i * LANES, 1, LANES)])


def _spread(value: float | np.floating[Any]) -> Expr:
    return T.Broadcast(T.float32(float(np.float32(value))), LANES)


def _intrinsic(name: str, value: Expr) -> Expr:
    return T.call_llvm_pure_intrin(_FLOATS, T.llvm_lookup_intrinsic_id(name), value)


def _rounded(value: Expr) -> Expr:
    """To the nearest integer, halves to even, as np.rint."""
    return _intrinsic("llvm.rint", value)


class _Powers:
    """The sizes of the inputs that a vector of groups meets: of each of its columns, in turn."""

    def __init__(self, turned: Expr, m: Expr) -> None:
        self.turned, self.row = turned, B.bind((m // LANES) % turned.shape[0])

    def __getitem__(self, j: Expr) -> Expr:
        return self.turned.vload([self.row, j * LANES], _FLOATS)


ANY = None
"""As many rows as there are."""


def _frame(inputs: Sequence[tuple[Any, int]], outputs: Sequence[int], body: Any) -> PrimFunc:
    """body(arrays, m) for every vector of groups: weights [M, group], then other inputs, each of
    (rows, columns), and outputs [rows, M]; all floats."""
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=False):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        handles = [B.arg(f"a{i}", T.handle()) for i in range(len(inputs) + len(outputs))]
        m = T.int64()
        (_, group), *others = inputs
        shapes = [(m, group)]
        shapes += [(T.int64() if n is ANY else n, columns) for n, columns in others]
        shapes += [(n, m) for n in outputs]
        arrays = [
            B.match_buffer(h, shape, "float32") for h, shape in zip(handles, shapes, strict=True)
        ]
        with B.serial(m // LANES) as vector:
            body(arrays, B.bind(vector * LANES))
    return builder.get()


def _turned(x: Expr, group: int, m: Expr) -> _Vectors:
    """Groups m .. m + 7, which are rows, side by side: vector j has their weights j."""
    found = _Vectors(group)
    with B.serial(group // LANES) as block:
        rows = [B.bind(x.vload([m + i, block * LANES], _FLOATS)) for i in range(LANES)]
        for i, column in enumerate(_transposed(rows)):
            found[block * LANES + i] = column
    return found


def _transposed(rows: list[Expr]) -> list[Expr]:
    """A square of vectors, rows for columns: blocks of 1, of 2 and of 4 beside the diagonal change
    places."""
    for step in (1, 2, 4):
        for i in (i for i in range(LANES) if not i & step):
            one, other = rows[i], rows[i + step]
            lanes = range(LANES)
            low = [lane + LANES - step if lane & step else lane for lane in lanes]
            high = [lane + LANES if lane & step else lane + step for lane in lanes]
            rows[i] = B.bind(T.Shuffle([one, other], low))
            rows[i + step] = B.bind(T.Shuffle([one, other], high))
    return rows


def fit_ranges(group: int, candidates: int, sized: bool) -> PrimFunc:
    """PrimFunc(x[M, group], levels[1, 1 + candidates], scale[1, M], minimum[1, M]), if `sized` with
    powers[P, 8 * group] after the levels. `levels`: the largest code, then how many each candidate
    has. Row v % P of the powers is of the groups 8 v to 8 v + 7, its column 8 j + i of the weight j
    of the i-th."""

    def body(arrays: list[Expr], m: Expr) -> None:
        rows, levels, *powers, scale, minimum = arrays
        most = B.bind(T.Broadcast(levels[0, 0], LANES))
        x = _turned(rows, group, m)
        weight, wx = _Vectors(group), _Vectors(group)
        power = _Powers(powers[0], m) if sized else None
        sums = _importances(x, weight, wx, group, power)
        total, sum_x, low, high = (B.bind(each) for each in sums)
        low = B.bind(T.min(low, _spread(0)))
        width = B.bind(T.max(high, _spread(0)) - low)
        per_width = B.bind(_spread(1) / T.max(width, _spread(TINY)))
        best = _Vectors(3)  # the error, the scale and the minimum
        best[0], best[1], best[2] = _spread(np.inf), width / most, low
        with B.serial(candidates) as candidate:
            steps = B.bind(T.Broadcast(levels[0, candidate + 1], LANES) * per_width)
            start = B.bind(low * steps)
            of_q = _Vectors(3)
            for i in range(3):
                of_q[i] = _spread(0)
            with B.serial(group) as j:
                # the bound holds where the twin leaves it out: less than half a level is added
                q = B.bind(T.min(_rounded(x[j] * steps - start), most))
                wq = B.bind(weight[j] * q)
                of_q[0] = of_q[0] + wq
                of_q[1] = of_q[1] + wq * q
                of_q[2] = of_q[2] + wx[j] * q
            sum_q, sum_qq, sum_qx = (B.bind(of_q[i]) for i in range(3))
            determinant = B.bind(T.max(total * sum_qq - sum_q * sum_q, _spread(TINY)))
            both = B.bind((total * sum_qx - sum_x * sum_q) / determinant)
            base = B.bind((sum_qq * sum_x - sum_q * sum_qx) / determinant)
            alone = B.bind(sum_qx / T.max(sum_qq, _spread(TINY)))
            s = B.bind(T.Select(base > _spread(0), alone, both))
            base = B.bind(T.Select(base > _spread(0), _spread(0), base))
            two = _spread(2)
            error = B.bind(s * (s * sum_qq + two * (base * sum_q - sum_qx)))
            error = B.bind(error + base * (base * total - two * sum_x))
            error = B.bind(T.Select(s > _spread(0), error, _spread(np.inf)))
            for i, new in ((2, base), (1, s), (0, error)):  # the error last: it decides
                best[i] = T.Select(error < best[0], new, best[i])
        B.buffer_store(scale, best[1], [0, T.Ramp(m, 1, LANES)])
        B.buffer_store(minimum, best[2], [0, T.Ramp(m, 1, LANES)])

    sizes = [(ANY, group * LANES)] if sized else []
    return _frame([(ANY, group), (1, 1 + candidates), *sizes], (1, 1), body)


def fit_symmetric(group: int, middle: int, shrunk: tuple[float, ...], sized: bool) -> PrimFunc:
    """PrimFunc(x[M, group], scale[1, M]), if `sized` with powers, as above, after x."""

    def body(arrays: list[Expr], m: Expr) -> None:
        rows, *powers, scale = arrays
        x = _turned(rows, group, m)
        weight, wx = _Vectors(group), _Vectors(group)
        power = _Powers(powers[0], m) if sized else None
        _, _, low, high = (B.bind(each) for each in _importances(x, weight, wx, group, power))
        largest = T.Select(_spread(0) - low > high, low, high)
        full = B.bind(largest / _spread(-middle))
        safe = B.bind(T.Select(full == _spread(0), _spread(1), full))
        best = _Vectors(2)  # the gain and the scale
        best[0], best[1] = _spread(-1), full
        for shrink in shrunk:
            steps = B.bind(_spread(np.float32(1 / shrink)) / safe)
            of_q = _Vectors(2)
            of_q[0], of_q[1] = _spread(0), _spread(0)
            with B.serial(group) as j:
                q = _rounded(x[j] * steps)
                q = B.bind(T.min(T.max(q, _spread(-middle)), _spread(middle - 1)))
                of_q[0] = of_q[0] + weight[j] * q * q
                of_q[1] = of_q[1] + wx[j] * q
            sum_qq, sum_qx = B.bind(of_q[0]), B.bind(of_q[1])
            fitted = B.bind(sum_qx / T.max(sum_qq, _spread(TINY)))
            gain = B.bind(sum_qx * fitted)
            for i, new in ((1, fitted), (0, gain)):  # the gain last: it decides
                best[i] = T.Select(gain > best[0], new, best[i])
        B.buffer_store(scale, best[1], [0, T.Ramp(m, 1, LANES)])

    sizes = [(ANY, group * LANES)] if sized else []
    return _frame([(ANY, group), *sizes], (1,), body)


def _importances(
    x: _Vectors, weight: _Vectors, wx: _Vectors, group: int, power: _Powers | None
) -> tuple[Expr, Expr, Expr, Expr]:
    """Fill in the weights of errors, |x| + rms or by the sizes of inputs, and these times x; the
    sums of both, and the least and the largest x."""
    state = _Vectors(5)
    first = B.bind(x[0])
    for i, value in enumerate((first * first, first, first, _spread(0), _spread(0))):
        state[i] = value
    with B.serial(group - 1) as j:
        value = B.bind(x[j + 1])
        state[0] = state[0] + value * value
        state[1] = T.min(state[1], value)
        state[2] = T.max(state[2], value)
    mean = B.bind(state[0] / _spread(group))
    rms = B.bind(_intrinsic("llvm.sqrt", mean))
    with B.serial(group) as j:
        value = B.bind(x[j])
        if power is None:
            own = B.bind(_intrinsic("llvm.fabs", value) + rms)
        else:
            own = B.bind(_intrinsic("llvm.sqrt", value * value + mean) * power[j])
        weight[j] = own
        weighted = B.bind(own * value)
        wx[j] = weighted
        state[3] = state[3] + own
        state[4] = state[4] + weighted
    return state[3], state[4], state[1], state[2]


def largest(group: int) -> PrimFunc:
    """PrimFunc(x[M, group], largest[1, M]): the largest magnitude of each group."""

    def body(arrays: list[Expr], m: Expr) -> None:
        rows, found = arrays
        x, peak = _turned(rows, group, m), _Vectors(1)
        peak[0] = _spread(0)
        with B.serial(group) as j:
            peak[0] = T.max(peak[0], _intrinsic("llvm.fabs", x[j]))
        B.buffer_store(found, peak[0], [0, T.Ramp(m, 1, LANES)])

    return _frame([(ANY, group)], (1,), body)


def codes(group: int, least: int, most: int) -> PrimFunc:
    """PrimFunc(x[M, group], low[M, 1], inverse[M, 1], codes u8[M, group]): (x - low) * inverse,
    rounded, least .. most, less the least. A group is a row, as weights and codes lie, so that
    nothing is turned round."""
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=False):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        m = T.int64()
        rows = [(group, "float32"), (1, "float32"), (1, "float32"), (group, "uint8")]
        handles = [B.arg(f"a{i}", T.handle()) for i in range(len(rows))]
        x, low, inverse, found = (
            B.match_buffer(h, (m, n), kind) for h, (n, kind) in zip(handles, rows, strict=True)
        )
        with B.serial(m) as row:
            start = B.bind(T.Broadcast(low[row, 0], LANES))
            per_step = B.bind(T.Broadcast(inverse[row, 0], LANES))
            with B.serial(group // LANES) as j:
                at = [row, j * LANES]
                code = _rounded((x.vload(at, _FLOATS) - start) * per_step)
                code = T.min(T.max(code, _spread(least)), _spread(most)) - _spread(least)
                whole = T.Cast(f"uint8x{LANES}", T.Cast(f"int32x{LANES}", code))
                B.buffer_store(found, whole, [row, T.Ramp(j * LANES, 1, LANES)])
    return builder.get()
