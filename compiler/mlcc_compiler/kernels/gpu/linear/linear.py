"""Linear layers on the GPU, for every scheme: y[n, N] = x[n, K] @ W.T (+ bias f32[N]).

One PrimFunc per part of a weight holds the launches for every n; weights that are merged, each of
its own scheme, are parts too, and write one y. The host code chooses:

    n <= 8                 gemv.py: W is read once, at the speed of memory
    more, matrix unit      matrix_gemm.py: tiles of 16, 32, 64 or 128 rows
    more, other devices    gemm.py: tiles of 32, 64 or 128 rows (half with 64 threads)

Weights that are stored for tensor cores (`fragments/order.py`) have two kernels of their own, one
for n <= 8, `fragments/gemv.py`, and one for more, `fragments/gemm.py`, which takes x rounded by a
launch before (`fragments/rounded.py`). The last of its tiles, for n > 64, is multiplied by warp
groups in libraries for sm_90a (`fragments/warp_group_products.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mlcc_compiler.ir.graph import Graph, Merged, Weight, dims, dtype_of, tensor
from mlcc_compiler.kernels.frame import Argument, Expr, PrimFunc, activations, f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import fp8_outputs
from mlcc_compiler.kernels.gpu.linear.fragments.codes import columns_of
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import row_of
from mlcc_compiler.kernels.gpu.linear.fragments.gemm import fragment_gemm
from mlcc_compiler.kernels.gpu.linear.fragments.gemv import COLUMNS, fragment_gemv
from mlcc_compiler.kernels.gpu.linear.fragments.joined import (
    Gate,
    gated_linear,
    joined_linear,
    joins,
)
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import (
    Rounded,
    emit_rounded,
    order_of_text,
    order_text,
    rounded_arguments,
)
from mlcc_compiler.kernels.gpu.linear.gemm import gemm, side
from mlcc_compiler.kernels.gpu.linear.gemv import gemv
from mlcc_compiler.kernels.gpu.linear.matrix_gemm import matrix_gemm
from mlcc_compiler.kernels.gpu.linear.matrix_tile import ROWS
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.split_weights import call_parts, packing
from mlcc_compiler.kernels.gpu.linear.variants import Variant, first_that_takes
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.linear.work_item import LinearWork
from mlcc_compiler.kernels.kernel_set import KernelSet

_FEW = (1, 2, 4, 8)
"""Rows of x of the streaming kernel's variants."""

_HEIGHTS = (2, 4, 8)
"""Rows of y per thread of the tiled kernel: tiles of 32, 64 and 128 rows."""


def emit_linear(
    kernels: KernelSet,
    graph: Graph,
    x: Any,
    weight: Weight | Merged,
    bias: Any | None = None,
    *,
    out: Any,
) -> Any:
    """Emit the calls, one for each part of each member; returns y."""
    dtype, last = str(out.dtype), [] if bias is None else [bias]
    forms = [packing(kernels.device, m.plan.shape, m.plan.scheme) for m in weight.members]
    if dtype_of(x) == "uint32" or (len(forms) > 1 and joins(kernels.device, forms)):
        made = bias is not None, dtype, dtype_of(x) == "uint32"
        joined = kernels.cached_kernel(joined_linear, tuple(forms), *made)
        given = [*_joined_inputs(kernels, graph, x, weight, forms), *last]
        return graph.call_tir(joined, "linear", given, out)
    columns = sum(form.n for form in forms)
    first, calls, inputs = 0, [], []
    for form in forms:
        of_one = (bias is not None, dtype, first, columns)
        calls += [
            kernels.cached_kernel(linear_part, form, p, *of_one) for p in range(len(form.parts))
        ]
        rounded = emit_rounded(kernels, graph, x, form) if form.fragments else []
        inputs += [[x, *rounded]] * len(form.parts)
        first += form.n
    before = iter(inputs)
    return call_parts(
        graph, "linear", weight, calls, lambda part: [*next(before), *part, *last], out
    )


def emit_gated_linear(
    kernels: KernelSet, graph: Graph, x: Any, weight: Weight | Merged, *rest: Any, out: Any
) -> Any:
    """Emit gate and up, one weight or two, with their activation: `rest` is [bias], kind, and the
    order of columns of the next product. Returns the value as pairs of float16, or 8-bit floats."""
    *bias, kind, order = rest
    forms = [packing(kernels.device, m.plan.shape, m.plan.scheme) for m in weight.members]
    columns, text = sum(form.n for form in forms), str(order)
    fp8 = fp8_outputs.form_of(text, columns // 2)
    gate = Gate(str(kind), () if fp8 else order_of_text(text), fp8)
    made = kernels.cached_kernel(
        gated_linear, tuple(forms), bool(bias), dtype_of(x) == "uint32", gate
    )
    inputs = _joined_inputs(kernels, graph, x, weight, forms)
    both = tensor([dims(x)[0], columns])
    _, products = graph.items(
        graph.call_tir(made, "gated_linear", [*inputs, *bias], [both, out]), 2
    )
    return products


def _joined_inputs(
    kernels: KernelSet, graph: Graph, x: Any, weight: Weight | Merged, forms: Sequence[GpuPacking]
) -> list[Any]:
    """x, its `Rounded`, and the tensors of all weights."""
    rounded = emit_rounded(kernels, graph, x, forms[0])
    return [*([] if dtype_of(x) == "uint32" else [x]), *rounded, *weight.tensors]


def rounding(gpu: Gpu, products: Sequence[Sequence[tuple[str, Sequence[int]]]]) -> str:
    """The order of columns in which x may be given as pairs to some products, each of which reads
    weights of (scheme, [N, K]), or `fp8_outputs.text_of`; "" = it must be given as floats."""
    forms = [[packing(gpu, shape, name) for name, shape in weights] for weights in products]
    if not all(joins(gpu, some) for some in forms):
        return ""
    rows = {row_of(gpu, form) for some in forms for form in some}
    if rows != {None}:
        return fp8_outputs.text_of(gpu, rows.pop()) if len(rows) == 1 else ""
    orders = {columns_of(form) for weights in forms for form in weights}
    return order_text(*orders) if len(orders) == 1 else ""


def linear_part(
    gpu: Gpu,
    packing: GpuPacking,
    part: int,
    bias: bool,
    result: str = "float32",
    first: int = 0,
    columns: int = 0,
) -> PrimFunc:
    """(x[n, K], [rounded x], the part's tensors, [bias f32[M]], y result[n, M]): the columns of y
    of the part's rows. M is `columns`, in which the weight's start at `first`; 0 = N. Weights in
    fragments take x also as `Rounded`."""
    rows, columns = packing.parts[part], columns or packing.n
    fp8 = row_of(gpu, packing)
    more = rounded_arguments(packing.k, fp8) if packing.fragments else {}

    def body(x: Expr, *buffers: Expr) -> None:
        rounded, (*tensors, y) = buffers[: len(more)], buffers[len(more) :]
        bias_buffer = tensors.pop() if bias else None
        reader = WeightReader(gpu, packing, tensors)

        def finish(m: Expr, n: Expr, value: Expr) -> None:
            column = n + (rows.start + first)
            total = value if bias_buffer is None else value + bias_buffer[column]
            store(y, total, m, column)

        work = LinearWork(rounded[0] if fp8 else x, len(rows), finish)
        if packing.fragments:
            first_that_takes(x.shape[0], _of_fragments(gpu, reader, work, Rounded(*rounded)))
        else:
            _choose(gpu, reader, work)

    arguments = {"x": activations(gpu, "n", packing.k), **more, **weight_arguments(packing, part)}
    if bias:
        arguments["bias"] = f32(columns)
    return kernel(body, **arguments, y=Argument(("n", columns), result))


def _choose(gpu: Gpu, reader: WeightReader, work: LinearWork) -> None:
    """Emit the launches for few and for many rows of x under their conditions."""
    variants: list[Variant] = []
    for columns in _FEW:
        variants.append((columns, partial(gemv, gpu, reader, work, columns)))
    matrix_unit = gpu.matrix_unit and gpu.f16
    for rows in ROWS if matrix_unit else ():
        variants.append((rows, partial(matrix_gemm, gpu, reader, work, rows)))
    for height in () if matrix_unit else _HEIGHTS:
        rows = side(gpu) * height
        variants.append((rows, partial(gemm, gpu, reader, work, height)))
    first_that_takes(work.x.shape[0], variants)


def _of_fragments(
    gpu: Gpu, reader: WeightReader, work: LinearWork, rounded: Rounded
) -> list[Variant]:
    """The kernels of weights that are stored for tensor cores."""
    variants: list[Variant] = [(COLUMNS, partial(fragment_gemv, gpu, reader, work))]
    for rows in ROWS:
        one = rows < ROWS[-1]
        emit = partial(fragment_gemm, gpu, reader, work, rows, rounded, single=one, share=True)
        variants.append((rows, emit))
    return variants
