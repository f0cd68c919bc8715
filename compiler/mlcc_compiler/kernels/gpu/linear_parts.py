"""Calls of kernels that read a packed weight, which may be cut into parts by rows.

The first part's call makes the output, the others write their share into it in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mlcc_compiler._tvm import relax
from mlcc_compiler.kernels.frame import PrimFunc
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.weight_layout import Packing
from mlcc_compiler.quantization import scheme

if TYPE_CHECKING:
    from mlcc_compiler.passes.lower import LowerOperators, Weight


def packing_of(gpu: Gpu, weight: Weight) -> Packing:
    """How the weight is stored."""
    rows, columns = weight.plan.shape
    return Packing(rows, columns, scheme(weight.plan.scheme), gpu.binding_bytes)


def call_parts(
    graph: LowerOperators,
    name: str,
    weight: Weight,
    kernels: Sequence[PrimFunc],
    inputs: Callable[[Sequence[Any]], list[Any]],
    out: Any,
) -> Any:
    """Emit kernels[p](*inputs(tensors of part p), output) for every part; returns the output."""
    count = len(weight.parts) // len(kernels)
    y = None
    for p, kernel in enumerate(kernels):
        arguments = inputs(weight.parts[p * count : (p + 1) * count])
        if y is None:
            y = graph.call_tir(kernel, name, arguments, out)
            continue
        function = graph.builder.add_func(kernel, f"{name}_part")
        call = relax.op.call_tir_inplace(function, [*arguments, y], [len(arguments)], out)
        y = graph.builder.emit(call)
    return y
