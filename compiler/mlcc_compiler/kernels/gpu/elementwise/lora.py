"""LoRA on the GPU (Hu et al., 2021), with any mix of adapters and ranks in one step: x times the
slot's A, then times its B. As in Punica (Chen et al., 2023), each token reads its own matrices.
float32: a workgroup for each token and module, then a thread for each number of the result.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.lora import LoraShape
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.norm import each_lane
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    bind,
    ceil_div,
    int32,
    launch,
    real,
    reduce,
    when,
)
from mlcc_compiler.kernels.lora_arguments import expand_arguments, shrink_arguments
from mlcc_compiler.kernels.step import Step

_LANES = 32
"""Threads per product."""


def adapt_shrink(gpu: Gpu, shape: LoraShape) -> PrimFunc:
    """The kernel of `shrink_arguments`."""
    teams = gpu.threads // _LANES

    def body(x: Expr, a: Expr, words: Expr, out: Expr) -> None:
        blocks = (x.shape[0], len(shape.outputs))
        with launch(blocks, (_LANES, teams)) as (i, part, lane, team):
            slot, rank = _use(shape, words, i)
            # all threads go round as often: barriers are within
            with T.serial(ceil_div(shape.rank, teams)) as k:
                r = bind(int32(k) * teams + team)
                mine = r < rank
                row = bind(part * shape.rank + T.min(r, shape.rank - 1))
                total = Local()
                total[0] = real(0)

                def multiply(j: Expr, row: Expr = row, total: Local = total) -> None:
                    total[0] = total[0] + x[i, j] * a[slot, row, j]

                with when(mine):
                    each_lane(shape.inputs, _LANES, lane, multiply)
                summed = reduce(gpu, total[0], add, lane, _LANES, team, teams)
                with when(T.And(mine, lane == 0)):
                    store(out, summed, i, row)

    return kernel(body, **shrink_arguments(gpu, shape))


def adapt_expand(gpu: Gpu, shape: LoraShape) -> PrimFunc:
    """The kernel of `expand_arguments`."""
    width = sum(shape.outputs)

    def body(y: Expr, small: Expr, b: Expr, words: Expr, out: Expr) -> None:
        blocks = (y.shape[0], ceil_div(width, gpu.threads))
        with launch(blocks, (gpu.threads,)) as (i, block, lane):
            column = bind(block * gpu.threads + lane)
            slot, rank = _use(shape, words, i)
            with when(column < width):
                part = T.int32(0)
                for start in shape.module_columns[1:]:
                    part = part + T.Select(column >= start, T.int32(1), T.int32(0))
                first = bind(part * shape.rank)
                total = Local()
                total[0] = y[i, column]
                with T.serial(rank) as r:
                    total[0] = total[0] + small[i, first + int32(r)] * b[slot, int32(r), column]
                store(out, total[0], i, column)

    return kernel(body, **expand_arguments(gpu, shape))


def _use(shape: LoraShape, words: Expr, i: Expr) -> tuple[Expr, Expr]:
    """The slot of a token's sequence and its rank; 0 and 0 without an adapter."""
    step, slot, rank = Step(shape.layout, words), Local(1, "int32"), Local(1, "int32")
    slot[0] = T.int32(0)
    rank[0] = T.int32(0)
    with when(i < step.count("tokens")):
        owner = bind(step.token(i, "sequence"))
        with when(step.sequence(owner, "adapter") >= 0):
            slot[0] = step.sequence(owner, "adapter")
            rank[0] = step.sequence(owner, "adapter_rank")
    return slot[0], rank[0]
