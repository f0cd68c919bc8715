"""Online softmax over a block of keys (Milakov and Gimelshein, 2018), for tiles of query rows."""

from __future__ import annotations

from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.batch import LOWEST, zeros
from mlcc_compiler.kernels.gpu.workgroup import Local, barrier, bind, real, when


def soften(
    weights: Expr,
    factors: Expr,
    keys: int,
    row: Expr,
    part: Expr,
    parts: int,
    best: Local,
    total: Local,
) -> None:
    """weights [keys, rows] become e ** (score - the row's largest so far); factors [rows], what
    that does to earlier sums. `best` and `total` are a thread's own: of its whole row, and of the
    part of it that it exponentiates, one of `parts`. All threads of the workgroup take part."""
    top = zeros(1)
    top[0] = best[0]
    with T.serial(keys) as key:
        top[0] = T.max(top[0], weights[key, row])
    # held in registers in between: TVM would put a barrier into a loop that changes cells
    each = keys // parts
    first, held = bind(part * each), zeros(each)
    for i in range(each):
        held[i] = weights[first + i, row]
    barrier()
    factor = bind(T.exp(best[0] - top[0]))
    best[0] = top[0]
    total[0] = total[0] * factor
    for i in range(each):
        hidden = held[i] <= real(LOWEST)
        held[i] = T.if_then_else(hidden, real(0), T.exp(held[i] - top[0]))
        total[0] = total[0] + held[i]
        store(weights, held[i], first + i, row)
    with when(part == 0):
        store(factors, factor, row)
    barrier()
