"""Products with the matrices that each token chose, on the GPU, for every scheme.

Matrices lie one below the other, [count * N, K], as those of a linear. A workgroup makes some
columns of one choice of one token, as `gpu/linear/gemv.py` does: the chosen experts' weights are
read at the speed of memory for a token, and again for each further one that chose them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler._tvm import tirx
from mlcc_compiler.graph import Graph, Weight, dims, tensor
from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.gemv import products, shape_for
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.parts import call_parts, packing
from mlcc_compiler.kernels.gpu.linear.weight import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.workgroup import bind, ceil_div, int32, launch, when
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.layout import WeightLayout


def stored(gpu: Gpu, shape: Sequence[int], scheme: str) -> GpuPacking:
    """The form of matrices [count, N, K]."""
    count, n_out, k = shape
    return packing(gpu, (count * n_out, k), scheme)


def layout(gpu: Gpu, shape: Sequence[int], scheme: str) -> WeightLayout:
    """The same for the writer of weights."""
    return stored(gpu, shape, scheme).layout()


def emit_expert_linear(
    kernels: KernelSet, graph: Graph, x: Any, choice: Any, weight: Weight, experts: int
) -> Any:
    """Emit the calls, one for each part of the weight."""
    plan, (rows, chosen) = weight.plan, dims(choice)
    form = stored(kernels.device, plan.shape, plan.scheme)
    numbers = Numbers(plan.shape[0], experts, chosen, dims(x)[1])
    made = [kernels.made(expert_part, form, p, numbers) for p in range(len(form.parts))]
    out = tensor([rows, numbers.slots * plan.shape[1]])
    return call_parts(graph, "expert_linear", weight, made, lambda part: [x, choice, *part], out)


@dataclass(frozen=True)
class Numbers:
    """Of an `ops.expert_linear`."""

    matrices: int
    experts: int
    chosen: int
    width: int
    """Of a row of x: K, or chosen * K where each choice has a part of its own."""

    @property
    def slots(self) -> int:
        """Products that a token needs: of each kind of matrix, of each choice."""
        return self.matrices // self.experts * self.chosen


def expert_part(gpu: Gpu, packing: GpuPacking, part: int, numbers: Numbers) -> PrimFunc:
    """(x f32[n, width], choice i32[n, chosen], the part's tensors, y f32[n, slots * N]): what of y
    is made by the part's rows."""
    part_rows, n_out = packing.parts[part], packing.n // numbers.matrices
    slots, chosen = numbers.slots, numbers.chosen

    def body(x: Expr, choice: Expr, *buffers: Expr) -> None:
        *tensors, y = buffers
        reader = WeightReader(gpu, packing, tensors)
        shape = shape_for(gpu, reader, slots * n_out, 1)
        blocks = ceil_div(n_out, shape.rows * shape.teams)
        with launch((blocks * slots, x.shape[0]), (shape.threads,)) as (block, token, thread):
            slot, strip = bind(block // blocks), bind(block % blocks)
            kind, j = bind(slot // chosen), bind(slot % chosen)
            matrix = bind(kind * numbers.experts + choice[token, j])
            base = bind(matrix * n_out - part_rows.start)
            first = bind((strip * shape.teams + thread // shape.lanes) * shape.rows)
            last = int32(len(part_rows) - 1)
            rows = [bind(tirx.max(tirx.min(base + first + r, last), 0)) for r in range(shape.rows)]
            source = _Part(x, j * packing.k if numbers.width != packing.k else 0, packing.k)

            def write(index: Expr, team: Expr, value: Expr) -> None:
                n = bind((strip * shape.teams + team) * shape.rows + index)
                row = bind(base + n)
                with when(tirx.all(n < n_out, row >= 0, row <= last)):
                    store(y, value, token, slot * n_out + n)

            products(gpu, reader, shape, source, [token], rows, thread, write)

    return kernel(
        body,
        x=f32("n", numbers.width),
        choice=i32("n", chosen),
        **weight_arguments(packing, part),
        y=f32("n", slots * n_out),
    )


class _Part:
    """Looks like a buffer [n, width]: the part of a wider one that begins at a column."""

    def __init__(self, buffer: Any, first: Expr, width: int) -> None:
        self.buffer, self.first = buffer, first
        self.shape, self.dtype = (buffer.shape[0], width), buffer.dtype

    def __getitem__(self, at: tuple[Expr, Expr]) -> Expr:
        row, column = at
        return self.buffer[row, self.first + column]
