"""Activations rounded to float16 once, for all workgroups that multiply them by tensor cores.

Up to 8 rows `gemv.py` rounds x itself, and nothing is launched here. With the rounded x comes the
scratch of products that share out K over workgroups (`gemm.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.graph import Graph, dims, tensor
from mlcc_compiler.kernels.frame import (
    Argument,
    Expr,
    PrimFunc,
    activations,
    f32,
    i32,
    kernel,
    store,
    u32,
)
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.fragments import mma
from mlcc_compiler.kernels.gpu.linear.fragments.codes import columns_of
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, int32, launch, when
from mlcc_compiler.kernels.kernel_set import KernelSet

FEW = 8
"""Rows up to which nothing is rounded."""
SUMS = 1 << 22
"""float32 cells for parts of sums: 512 tiles of 64 by 128, or 128 of 128 by 256."""
COUNTERS = 128
"""Tiles that workgroups may share."""


@dataclass(frozen=True)
class Rounded:
    """The buffers of `round_rows`, as arguments of a kernel."""

    pairs: Any
    """u32[n, K / 2]: pairs of float16, in a unit of eight in the order of the codes."""
    counters: Any
    """i32[COUNTERS], all 0."""
    sums: Any
    """f32[SUMS], of any content."""


def rounded_arguments(width: int) -> dict[str, Argument]:
    """The kernel arguments of `Rounded`."""
    return {"pairs": u32("n", width // 2), "counters": i32(COUNTERS), "sums": f32(SUMS)}


def emit_rounded(kernels: KernelSet, graph: Graph, x: Any, form: GpuPacking) -> list[Any]:
    """Emit `round_rows`, once for an x and an order of columns; returns its values."""
    (rows, width), order = dims(x), columns_of(form)
    key = ("rounded", x, order)
    if key not in graph.memo:
        made = kernels.cached_kernel(round_rows, width, order)
        out = [tensor([rows, width // 2], "uint32"), tensor([COUNTERS], "int32"), tensor([SUMS])]
        graph.memo[key] = graph.items(graph.call_tir(made, "round_rows", [x], out), 3)
    found: list[Any] = graph.memo[key]
    return found


def round_rows(gpu: Gpu, width: int, order: tuple[int, ...]) -> PrimFunc:
    """(x[n, width]) -> the buffers of `Rounded`. order: of the columns of a unit, two a pair."""
    units = width // UNIT

    def body(x: Expr, pairs: Expr, counters: Expr, sums: Expr) -> None:
        rows = x.shape[0]
        grid = ceil_div(units, gpu.threads), rows
        with when(rows > FEW), launch(grid, (gpu.threads,)) as (block, row, thread):
            at = bind(block * gpu.threads + thread)
            with when(tirx.all(row == 0, at < COUNTERS)):
                store(counters, T.int32(0), at)
            with when(at < units):
                values, words = load(x, row, at * UNIT, UNIT), Local(UNIT // 2, "uint32")
                for i in range(UNIT // 2):
                    words[i] = mma.halves(values[order[2 * i]], values[order[2 * i + 1]])
                with T.vectorized(UNIT // 2) as v:
                    store(pairs, words[int32(v)], row, at * (UNIT // 2) + int32(v))

    return kernel(body, x=activations(gpu, "n", width), **rounded_arguments(width))
