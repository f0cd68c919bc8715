"""Calls of kernels that read a packed weight, which may be split into parts by rows.

The first part's call makes the output, the others write their rows into it in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mlcc_compiler.ir._tvm import relax
from mlcc_compiler.ir.graph import Graph, Merged, Weight
from mlcc_compiler.ir.layout import WeightLayout
from mlcc_compiler.kernels.frame import PrimFunc
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments.order import fits
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.quantization import scheme


def packing(gpu: Gpu, shape: Sequence[int], scheme_name: str, fragments: bool = True) -> GpuPacking:
    """The packing of a matrix or a table; with fragments, if the device has them and they fit."""
    rows, columns = shape
    made = GpuPacking(rows, columns, scheme(scheme_name), gpu.binding_bytes)
    if fragments and gpu.fragments and fits(columns, made.scheme, made.parts):
        return replace(made, fragments=True)
    return made


def layout(gpu: Gpu, shape: Sequence[int], scheme_name: str) -> WeightLayout:
    """The layout for the weight writer; linears and lookups read the same form."""
    return packing(gpu, shape, scheme_name).layout()


def call_parts(
    graph: Graph,
    name: str,
    weight: Weight | Merged,
    kernels: Sequence[PrimFunc],
    inputs: Callable[[Sequence[Any]], list[Any]],
    out: Any,
) -> Any:
    """Emit kernels[p](*inputs(tensors of part p), output) for every part of every member; returns
    the output."""
    parts, y = list(_parts(weight)), None
    for kernel, part in zip(kernels, parts, strict=True):
        arguments = inputs(part)
        if y is None:
            y = graph.call_tir(kernel, name, arguments, out)
            continue
        function = graph.add(kernel, f"{name}_part")
        call = relax.op.call_tir_inplace(function, [*arguments, y], [len(arguments)], out)
        y = graph.builder.emit(call)
    return y


def _parts(weight: Weight | Merged) -> Iterator[list[Any]]:
    """The tensors of each part: a repeated suffix starts the next part."""
    for member in weight.members:
        suffixes = [tensor.suffix for tensor in member.plan.layout.tensors]
        kinds = {re.sub(r"\.\d+$", "", suffix) for suffix in suffixes}
        for i in range(0, len(suffixes), len(kinds)):
            yield member.parts[i : i + len(kinds)]
