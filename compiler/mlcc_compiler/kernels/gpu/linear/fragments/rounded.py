"""Activations rounded to float16 once, for all workgroups that multiply them by tensor cores.

The kernel that makes x rounds it, where only such products read it (`passes/round_activations.py`).
Of other x `round_rows` does, for more than 8 rows; fewer `gemv.py` rounds itself. With
`--activations 8` weights of 8-bit floats take x as such (`fp8_rows.py`), of any number of rows.
With the rounded x comes the scratch of workgroups that wait for each other (`split_k.py`,
`joined.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.graph import Graph, dims, dtype_of, sizes, tensor
from mlcc_compiler.kernels.frame import (
    Argument,
    Expr,
    PrimFunc,
    Sizes,
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
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import Fp8Row, round_to_fp8, row_of
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, int32, launch, when
from mlcc_compiler.kernels.kernel_set import KernelSet

FEW = 8
"""Rows up to which nothing is rounded."""
SUMS = 1 << 22
"""float32 cells for parts of sums: 512 tiles of 64 by 128, or 128 of 128 by 256."""
SHARED_TILES = 128
"""Tiles that workgroups may share."""
PAIRED_TILES = 1024
"""Tiles of gate that wait for their tile of up, or the other way round (`joined.py`)."""
COUNTERS = SHARED_TILES + PAIRED_TILES


@dataclass(frozen=True)
class Rounded:
    """Activations as words, and the scratch of their products, as arguments of a kernel."""

    pairs: Any
    """u32[n, K / 2]: pairs of float16, in a unit of eight in the order of the codes; or 8-bit
    floats and their scales (`fp8_rows.py`)."""
    counters: Any
    """i32[COUNTERS], all 0, which a kernel leaves them again."""
    sums: Any
    """f32[SUMS], of any content."""


def rounded_arguments(width: int, fp8: Fp8Row | None = None) -> dict[str, Argument]:
    """The kernel arguments of `Rounded`. fp8: the form of 8-bit floats."""
    words = width // fp8.k * fp8.words if fp8 else width // 2
    return {"pairs": u32("n", words), **scratch_arguments()}


def scratch_arguments() -> dict[str, Argument]:
    """Those that do not depend on x."""
    return {"counters": i32(COUNTERS), "sums": f32(SUMS)}


def emit_rounded(
    kernels: KernelSet, graph: Graph, x: Any, form: GpuPacking, experts: bool = False
) -> list[Any]:
    """Emit `round_rows`, once for an x and an order of columns; returns the values of `Rounded`. x
    may be pairs already. experts: see `row_of`."""
    if dtype_of(x) == "uint32":
        return [x, *emit_scratch(kernels, graph, x)]
    if fp8 := row_of(kernels.device, form, experts):
        return [_emit_fp8(kernels, graph, x, fp8), *emit_scratch(kernels, graph, x)]
    (rows, width), order = dims(x), columns_of(form)
    key = ("rounded", x, order)
    if key not in graph.memo:
        made = kernels.cached_kernel(round_rows, width, order)
        pairs = tensor([rows, width // 2], "uint32")
        graph.memo[key] = graph.call_tir(made, "round_rows", [x], pairs)
    return [graph.memo[key], *emit_scratch(kernels, graph, x)]


def _emit_fp8(kernels: KernelSet, graph: Graph, x: Any, fp8: Fp8Row) -> Any:
    """Emit `round_to_fp8`, once for an x and a form."""
    (rows, width), key = dims(x), ("fp8", x, fp8)
    if key not in graph.memo:
        made = kernels.cached_kernel(round_to_fp8, width, fp8)
        words = tensor([rows, width // fp8.k * fp8.words], "uint32")
        graph.memo[key] = graph.call_tir(made, "round_to_fp8", [x], words)
    return graph.memo[key]


def emit_scratch(kernels: KernelSet, graph: Graph, x: Any) -> list[Any]:
    """Emit `clear`, once a step, before x is multiplied; returns counters and sums."""
    if "scratch" not in graph.memo:
        out = [tensor([COUNTERS], "int32"), tensor([SUMS])]
        made = kernels.cached_kernel(clear, sizes(x), dtype_of(x), COUNTERS, SUMS)
        call = graph.call_tir(made, "clear_counters", [x], out)
        graph.memo["scratch"] = graph.items(call, 2)
    found: list[Any] = graph.memo["scratch"]
    return found


def clear(gpu: Gpu, row: Sizes, dtype: str, counters: int, sums: int = 0) -> PrimFunc:
    """(x[n, ...]) -> counters, all 0, and sums, if any, of any content. It reads nothing of x: a
    kernel without inputs would be captured as a CUDA graph of its own, outside of a step's."""

    def body(x: Expr, cells: Expr, *rest: Expr) -> None:
        with launch((ceil_div(counters, gpu.threads),), (gpu.threads,)) as (block, thread):
            at = bind(block * gpu.threads + thread)
            with when(at < counters):
                store(cells, T.int32(0), at)

    more = {"sums": f32(sums)} if sums else {}
    return kernel(body, x=Argument(("n", *row), dtype), counters=i32(counters), **more)


def order_text(order: tuple[int, ...]) -> str:
    """An order of columns as an attribute."""
    return "".join(map(str, order))


def order_of_text(text: str) -> tuple[int, ...]:
    """The order of an attribute."""
    return tuple(map(int, text))


def store_unit(
    pairs: Any, values: Sequence[Expr], order: Sequence[int], row: Expr, at: Expr
) -> None:
    """Emit the rounding of a unit of eight numbers of a row, the unit's number being `at`."""
    words = Local(UNIT // 2, "uint32")
    for i in range(UNIT // 2):
        words[i] = mma.halves(values[order[2 * i]], values[order[2 * i + 1]])
    with T.vectorized(UNIT // 2) as v:
        store(pairs, words[int32(v)], row, at * (UNIT // 2) + int32(v))


def round_rows(gpu: Gpu, width: int, order: tuple[int, ...]) -> PrimFunc:
    """(x[n, width]) -> the pairs of `Rounded`. order: of the columns of a unit, two a pair."""
    units = width // UNIT

    def body(x: Expr, pairs: Expr) -> None:
        rows = x.shape[0]
        grid = ceil_div(units, gpu.threads), rows
        with when(rows > FEW), launch(grid, (gpu.threads,)) as (block, row, thread):
            at = bind(block * gpu.threads + thread)
            with when(at < units):
                store_unit(pairs, load(x, row, at * UNIT, UNIT), order, row, at)

    return kernel(body, x=activations(gpu, "n", width), pairs=u32("n", width // 2))
