"""Router with a selection bias, on the GPU: `ops.route_corrected`; `router.py` is the plain one.
The purpose of the bias and the groups is explained in the CPU's kernel.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import sigmoid
from mlcc_compiler.kernels.gpu.sampling.ordered_floats import ordered_bits
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    barrier,
    bind,
    ceil_div,
    int32,
    largest,
    launch,
    real,
    reduce,
    shared,
    when,
)

_LOWEST = -3e38


def route_corrected(
    gpu: Gpu,
    row: Sizes,
    bias: Sizes,
    k: int,
    score: str,
    normalise: int,
    scale: float,
    least: float,
    groups: int,
    num_kept: int,
    best: int = 2,
    added: float = 0.0,
) -> PrimFunc:
    """(logits f32[n, experts], bias f32[experts]) -> choice i32[n, k], weights f32[n, k]: see
    `ops.route_corrected`.

    A workgroup a row. An expert's rank is the number of experts before it, those of kept groups
    first, so k different experts are chosen for any logits.
    """
    (experts,) = row
    threads = min(gpu.threads, 64 if experts <= 64 else gpu.threads)
    each = ceil_div(experts, threads)

    def body(logits: Expr, correction: Expr, choice: Expr, weights: Expr) -> None:
        with launch((logits.shape[0],), (threads,)) as (token, thread):
            mine = [bind(thread + i * threads) for i in range(each)]
            inside = [bind(tirx.min(e, int32(experts - 1))) for e in mine]
            values, biased, ranks = Local(each), Local(each), Local(each, "int32")
            for i, e in enumerate(inside):
                values[i] = logits[token, e]
            _score(gpu, values, mine, experts, score, thread, threads)
            for i, e in enumerate(inside):
                biased[i] = values[i] + correction[e]
            keys = shared((experts,), "uint32")
            sums = shared((experts,)) if groups > 1 else None
            for i, e in enumerate(mine):
                with when(e < experts):
                    store(keys, ordered_bits(biased[i]), e)
                    if sums is not None:
                        store(sums, biased[i], e)
            barrier()
            if sums is not None:
                _mask_groups(keys, sums, mine, experts, groups, num_kept, best)
            for i, e in enumerate(inside):
                own = bind(keys[e])
                ranks[i] = _count_before(keys, experts, own, e)
            barrier()  # TVM may put what `reduce` shares where the keys were
            factor = real(scale)
            if normalise:
                total = Local()
                total[0] = real(0)
                for i, e in enumerate(mine):
                    counted = tirx.all(e < experts, ranks[i] < k)
                    total[0] = total[0] + T.Select(counted, values[i], real(0))
                summed = reduce(gpu, total[0], add, thread, threads)
                factor = bind(factor / (T.max(summed, real(least)) + real(added)))
            for i, e in enumerate(mine):
                with when(tirx.all(e < experts, ranks[i] < k)):
                    store(choice, e, token, ranks[i])
                    store(weights, values[i] * factor, token, ranks[i])

    chosen = f32("n", k)
    return kernel(
        body,
        logits=f32("n", experts),
        correction=f32(experts),
        choice=i32("n", k),
        weights=chosen,
    )


def _score(
    gpu: Gpu,
    values: Local,
    mine: list[Expr],
    experts: int,
    score: str,
    thread: Expr,
    threads: int,
) -> None:
    """Turn logits into scores, in place."""
    if score == "sigmoid":
        for i in range(len(mine)):
            values[i] = sigmoid(values[i])
        return
    cell = Local()
    for i in range(len(mine)):
        cell[0] = values[i] if i == 0 else T.max(cell[0], values[i])
    most = reduce(gpu, cell[0], largest, thread, threads)
    cell[0] = real(0)
    for i, e in enumerate(mine):
        values[i] = T.exp(values[i] - most)
        cell[0] = cell[0] + T.Select(e < experts, values[i], real(0))
    total = reduce(gpu, cell[0], add, thread, threads)
    for i in range(len(mine)):
        values[i] = values[i] / total


def _mask_groups(
    keys: Expr,
    sums: Expr,
    mine: list[Expr],
    experts: int,
    groups: int,
    num_kept: int,
    best: int,
) -> None:
    """Give experts of groups that are not kept the lowest key. A thread compares the group of each
    of its experts with all other groups: there are few."""
    each = experts // groups

    def worth(group: Expr) -> Expr:
        first, second = Local(), Local()
        first[0], second[0] = real(_LOWEST), real(_LOWEST)
        with T.serial(each) as e:
            value = bind(sums[group * each + int32(e)])
            second[0] = T.max(second[0], T.min(first[0], value))
            first[0] = T.max(first[0], value)
        return bind(ordered_bits(first[0] + second[0] if best == 2 else first[0]))

    group_keys = shared((groups,), "uint32")
    for e in mine:
        with when(e < groups):
            store(group_keys, worth(e), e)
    barrier()
    for e in mine:
        with when(e < experts):
            group = bind(tirx.truncdiv(e, int32(each)))
            own = bind(group_keys[group])
            with when(_count_before(group_keys, groups, own, group) >= num_kept):
                store(keys, T.uint32(0), e)
    barrier()


def _count_before(keys: Expr, count: int, own: Expr, place: Expr) -> Expr:
    """Emit the number of keys ahead of the one at `place`: larger ones, and equal ones with a lower
    index."""
    rank = Local(1, "int32")
    rank[0] = T.int32(0)
    with T.serial(count) as other:
        key = bind(keys[int32(other)])
        before = tirx.any(key > own, tirx.all(key == own, int32(other) < place))
        rank[0] = rank[0] + T.Select(before, T.int32(1), T.int32(0))
    return bind(rank[0])
