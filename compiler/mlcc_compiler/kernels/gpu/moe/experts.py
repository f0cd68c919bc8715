"""Products with each token's chosen experts on the GPU, for every scheme.

Matrices are stacked, [count * N, K], as those of a linear, and the kernels are a linear's
(`gpu/linear`), with other work items (`work_items.py`). The host code chooses:

    few tokens    gemv.py: a token's choice at a time. Each token reads the experts
                  it chose
    more          matrix_gemm.py or gemm.py: tiles of tokens that chose one expert

or, where weights are stored for tensor cores, fragments/gemv.py and fragments/gemm.py; in
libraries for sm_90a tiles of 128 tokens by fragments/warp_group_products.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mlcc_compiler.ir.graph import Graph, Weight, dims, tensor
from mlcc_compiler.ir.layout import WeightLayout
from mlcc_compiler.kernels.frame import Expr, PrimFunc, activations, i32, kernel
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import warp_group
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import row_of
from mlcc_compiler.kernels.gpu.linear.fragments.gemm import fragment_gemm
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import tile_for
from mlcc_compiler.kernels.gpu.linear.fragments.gemv import fragment_gemv
from mlcc_compiler.kernels.gpu.linear.fragments.order import EDGE
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import (
    Rounded,
    emit_rounded,
    rounded_arguments,
)
from mlcc_compiler.kernels.gpu.linear.gemm import gemm, side
from mlcc_compiler.kernels.gpu.linear.gemv import gemv
from mlcc_compiler.kernels.gpu.linear.matrix_gemm import matrix_gemm
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.split_weights import call_parts, packing
from mlcc_compiler.kernels.gpu.linear.variants import Variant, first_that_takes
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.moe.sort_over_grid import expert_order_over_grid
from mlcc_compiler.kernels.gpu.moe.sort_tokens import expert_order
from mlcc_compiler.kernels.gpu.moe.work_items import ExpertLinearShape, GroupedWork, PerTokenWork
from mlcc_compiler.kernels.kernel_set import Factory, KernelSet

_ALONE = 8
"""Tokens up to which each reads its own experts, with matrix instructions: nothing is sorted."""


def stored(gpu: Gpu, shape: Sequence[int], scheme: str) -> GpuPacking:
    """The packing of matrices [count, N, K]; in fragments, a tile has rows of one matrix."""
    count, n_out, k = shape
    return packing(gpu, (count * n_out, k), scheme, fragments=n_out % EDGE == 0)


def layout(gpu: Gpu, shape: Sequence[int], scheme: str) -> WeightLayout:
    """The layout of matrices [count, N, K] for the weight writer."""
    return stored(gpu, shape, scheme).layout()


def emit_expert_linear(
    kernels: KernelSet, graph: Graph, x: Any, choice: Any, weight: Weight, experts: int, *, out: Any
) -> Any:
    """Emit the sort of tokens by expert, once per choice, and a call for each part of the
    weight."""
    plan, (rows, chosen) = weight.plan, dims(choice)
    key, steps = ("expert_order", choice), heights(kernels.device)
    if key not in graph.memo:
        table = tensor([1 + len(steps), experts + 1], "int32")
        factory, sizes = order_of(kernels.device, experts, chosen)
        made = kernels.cached_kernel(factory, *sizes)
        lists = [tensor([rows, chosen], "int32"), table]
        pair = graph.call_tir(made, "expert_order", [choice], lists)
        graph.memo[key] = graph.items(pair, 2)
    form = stored(kernels.device, plan.shape, plan.scheme)
    fp8 = row_of(kernels.device, form, experts=True)
    words = fp8.words if fp8 else 0
    numbers = ExpertLinearShape(plan.shape[0], experts, chosen, dims(x)[1], words)
    parts = [kernels.cached_kernel(expert_part, form, p, numbers) for p in range(len(form.parts))]
    rounded = emit_rounded(kernels, graph, x, form, experts=True) if form.fragments else []
    inputs = [x, *rounded, choice, *graph.memo[key]]
    return call_parts(graph, "expert_linear", weight, parts, lambda part: [*inputs, *part], out)


def order_of(gpu: Gpu, experts: int, chosen: int) -> tuple[Factory, tuple[Any, ...]]:
    """The kernel that sorts tokens by expert, and its arguments behind the device."""
    sizes = (experts, chosen, heights(gpu))
    if gpu.fragments and gpu.matrix_unit and gpu.f16:
        return expert_order_over_grid, (*sizes, _ALONE)
    return expert_order, sizes


def heights(gpu: Gpu) -> tuple[int, ...]:
    """Rows of the tiles; where there are several, for few and for many tokens an expert. 128 are
    multiplied by warp groups."""
    if gpu.matrix_unit and gpu.f16:
        return (16, 64, warp_group.ROWS) if gpu.warp_groups and gpu.fragments else (16, 64)
    return (2 * side(gpu),)


def _tiles(gpu: Gpu, packing: GpuPacking) -> tuple[int, ...]:
    """The heights that have a kernel for a weight: all, but for weights that warp groups do not
    take and for x in 8-bit floats."""
    takes = packing.fragments and tile_for(gpu, warp_group.ROWS, packing).warp_groups
    found = heights(gpu)
    return found if takes and not row_of(gpu, packing) else found[:2]


def expert_part(gpu: Gpu, packing: GpuPacking, part: int, numbers: ExpertLinearShape) -> PrimFunc:
    """(x[n, width], [rounded x], choice i32[n, chosen], order and begin of `expert_order`, the
    part's tensors, y[n, slots * N]): the columns of y of the part's rows. Weights in fragments take
    x also as `Rounded`."""
    n_out = packing.n // numbers.matrices
    fp8 = row_of(gpu, packing, experts=True)
    more = rounded_arguments(numbers.width, fp8) if packing.fragments else {}

    def body(x: Expr, *buffers: Expr) -> None:
        rounded, (choice, order, begin, *tensors, y) = buffers[: len(more)], buffers[len(more) :]
        reader = WeightReader(gpu, packing, tensors)
        x = rounded[0] if fp8 else x
        alone = PerTokenWork(x, y, packing, part, numbers, choice)
        few = fragment_gemv if packing.fragments else gemv
        variants: list[Variant] = [
            (max_per_token(gpu, numbers), partial(few, gpu, reader, alone, 1))
        ]
        for row, height in enumerate(_tiles(gpu, packing)):
            work = GroupedWork(x, y, packing, part, numbers, order, begin, row + 1)
            # tiles that are half full on average; of 64 before 128 full, as two unpack W twice
            full = 1 if (height, heights(gpu)[-1]) == (64, warp_group.ROWS) else 2
            most = height * numbers.experts // (full * numbers.chosen)
            variants.append((most, _tiled(gpu, reader, work, height, rounded)))
        first_that_takes(x.shape[0], variants)

    return kernel(
        body,
        x=activations(gpu, "n", numbers.width),
        **more,
        choice=i32("n", numbers.chosen),
        order=i32("n", numbers.chosen),
        begin=i32(1 + len(heights(gpu)), numbers.experts + 1),
        **weight_arguments(packing, part),
        y=activations(gpu, "n", numbers.slots * n_out),
    )


def max_per_token(gpu: Gpu, numbers: ExpertLinearShape) -> int:
    """Tokens up to which each token reads its own experts: without matrix instructions a tile must
    be a quarter full to be faster, with them it must save reads."""
    if gpu.matrix_unit and gpu.f16:
        return _ALONE
    return heights(gpu)[0] * numbers.experts // (4 * numbers.chosen)


def _tiled(
    gpu: Gpu, reader: WeightReader, work: GroupedWork, height: int, rounded: Sequence[Any]
) -> Callable[[], None]:
    if reader.packing.fragments:
        return partial(fragment_gemm, gpu, reader, work, height, Rounded(*rounded))
    if gpu.matrix_unit and gpu.f16:
        return partial(matrix_gemm, gpu, reader, work, height)
    return partial(gemm, gpu, reader, work, height // side(gpu))
