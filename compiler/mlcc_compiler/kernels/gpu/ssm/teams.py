"""Teams of threads that hold a row of a state in registers: their sums; and the softplus of time
steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    barrier,
    bind,
    real,
    reduce,
    shared,
    when,
)

LANES = 16
"""Maximum threads per row: 64 bytes side by side."""


def softplus(x: Expr) -> Expr:
    """log(1 + e**x), where e**x never overflows."""
    x = bind(x)
    return bind(T.max(x, real(0)) + T.log(real(1) + T.exp(real(0) - T.fabs(x))))


def product(a: Local, b: Local, each: int) -> Expr:
    """This thread's part of an inner product."""
    total = a[0] * b[0]
    for i in range(1, each):
        total = total + a[i] * b[i]
    return bind(total)


def totals(
    gpu: Gpu, parts: Sequence[Expr], lane: Expr, lanes: int, team: Expr, teams: int
) -> list[Expr]:
    """Each of `parts` summed over the lanes of a team. Without subgroups, all of them at once:
    `reduce` would synchronise once for each."""
    if lanes == 1 or gpu.subgroup >= lanes:
        return [reduce(gpu, part, add, lane, lanes, team, teams) for part in parts]
    # a buffer each: of one, TVM would want a barrier between its parts, under the condition
    cells = [shared((teams * lanes,)) for _ in parts]
    first = team * lanes
    for cell, part in zip(cells, parts, strict=True):
        store(cell, part, first + lane)
    barrier()
    half = lanes // 2
    while half:
        with when(lane < half):
            for cell in cells:
                store(cell, cell[first + lane] + cell[first + lane + half], first + lane)
        barrier()
        half //= 2
    totals = [bind(cell[first]) for cell in cells]
    barrier()  # so that the cells may be written again
    return totals
