"""Linear layers on the CPU: the entry the kernel set calls, for every scheme.

    packing(n, k, scheme, isa)  -> shapes, `pack` and `unpack` of the weight
    linear(isa, n, k, scheme, bias) -> the PrimFunc that reads it
    needs_quantized_rows(scheme)    -> whether x goes through `quantize_rows` first
    emit_linear(kernels, graph, x, weight, bias) -> the calls of both

Schemes are given by name or as rows. See `packing`, `tile`, `floats`, `quantized`
and `quantize_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc_compiler.ir.graph import Graph, Merged, Weight, dims, tensor
from mlcc_compiler.ir.layout import WeightLayout
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.amx_gemm import linear_many, rows_both_ways, uses_amx
from mlcc_compiler.kernels.cpu.linear.bf16 import linear_bf16, round_rows, uses_bf16_dot
from mlcc_compiler.kernels.cpu.linear.floats import linear_float
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking, row_form
from mlcc_compiler.kernels.cpu.linear.quantize_rows import quantize_rows
from mlcc_compiler.kernels.cpu.linear.quantized import linear_merged, linear_quantized
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.quantization import Scheme, scheme

__all__ = [
    "CpuPacking",
    "emit_linear",
    "linear",
    "linear_float",
    "linear_merged",
    "linear_quantized",
    "needs_quantized_rows",
    "packing",
    "quantize_rows",
    "row_form",
    "share_input",
]


def packing(n_out: int, k: int, how: str | Scheme, isa: Isa) -> CpuPacking:
    """The physical form of a weight [N, K]. Raises UnsupportedError if the group does not fit."""
    result = CpuPacking(n_out, k, _scheme(how), isa)
    if not result.scheme.is_float:
        result.scheme.group_of(k)
    return result


def linear(
    isa: Isa, n_out: int, k: int, how: str | Scheme, bias: bool, result: str = "float32"
) -> Any:
    """The PrimFunc of `linear_float`, `linear_bf16`, `linear_quantized` or `linear_many`; their
    docstrings list parameters."""
    if uses_amx(isa, k, _scheme(how)):
        return linear_many(isa, ((n_out, _scheme(how)),), k, bias, result)
    if uses_bf16_dot(isa, k, _scheme(how)):
        return linear_bf16(isa, n_out, k, _scheme(how), bias, result)
    build = linear_float if _scheme(how).is_float else linear_quantized
    return build(isa, n_out, k, _scheme(how), bias, result)


def needs_quantized_rows(how: str | Scheme) -> bool:
    """Whether the weight has codes, which multiply activations of `quantize_rows(isa, k,
    form.group, form.sums)`, with the form `row_form(scheme, k)`."""
    return not _scheme(how).is_float


def layout(isa: Isa, shape: Sequence[int], how: str) -> WeightLayout:
    """The layout of a weight for the weight writer."""
    n_out, k = shape
    return packing(n_out, k, how, isa).layout()


def share_input(schemes: Sequence[str], k: int) -> bool:
    """Whether one product may read weights of these schemes: codes that take the same form of x."""
    rows = [_scheme(name) for name in schemes]
    if any(row.is_float for row in rows):
        return len(set(schemes)) == 1
    return len({row_form(row, k) for row in rows}) == 1


def emit_linear(
    kernels: KernelSet,
    graph: Graph,
    x: Any,
    weight: Weight | Merged,
    bias: Any | None = None,
    *,
    out: Any,
) -> Any:
    """Emit a linear layer. Float weights multiply rows as they are, or as bf16 where the CPU
    supports that; codes multiply rows quantized once per input."""
    plans = [member.plan for member in weight.members]
    inputs = _inputs(kernels, graph, x, weight.members[0])
    arguments = [*inputs, *weight.tensors, *([] if bias is None else [bias])]
    made: tuple[Any, ...] = (bias is not None, str(out.dtype))
    if len(plans) == 1:
        kernel = kernels.cached_kernel(linear, *plans[0].shape, plans[0].scheme, *made)
    else:
        parts = tuple((plan.shape[0], _scheme(plan.scheme)) for plan in plans)
        k = plans[0].shape[1]
        merged = linear_many if uses_amx(kernels.device, k, parts[0][1]) else linear_merged
        kernel = kernels.cached_kernel(merged, parts, k, *made)
    return graph.call_tir(kernel, "linear", arguments, out)


def _inputs(kernels: KernelSet, graph: Graph, x: Any, weight: Weight) -> list[Any]:
    """x in the form the product takes; experts with float weights take it unchanged."""
    (rows, width), how = dims(x), _scheme(weight.plan.scheme)
    if not uses_bf16_dot(kernels.device, width, how):
        by_tiles = uses_amx(kernels.device, width, how)
        made_by = rows_both_ways if by_tiles else quantize_rows
        return inputs_of(kernels, graph, x, weight, made_by)
    key = ("round_rows", x)
    if key not in graph.memo:
        kernel = kernels.cached_kernel(round_rows, width)
        out = tensor([rows, width], "uint16")
        graph.memo[key] = graph.call_tir(kernel, "round_rows", [x], out)
    return [graph.memo[key]]


def inputs_of(
    kernels: KernelSet,
    graph: Graph,
    x: Any,
    weight: Weight,
    made_by: Callable[..., Any] = quantize_rows,
) -> list[Any]:
    """x, or its quantized form: int8 codes, scales and sums of x's groups, shared by all readers of
    x with that form; for `rows_both_ways` also x as bf16."""
    if not needs_quantized_rows(weight.plan.scheme):
        return [x]
    rows, width = dims(x)
    form = row_form(_scheme(weight.plan.scheme), weight.plan.shape[-1])
    key = (made_by.__name__, x, form.group, form.sums)
    if key not in graph.memo:
        every = width * kernels.device.activation_parts
        scales, sums = [rows, every // form.group], [rows, every // form.sums]
        out = [tensor([rows, every], "int8"), tensor(scales), tensor(sums, "int32")]
        if made_by is rows_both_ways:
            out.append(tensor([rows, width], "uint16"))
        kernel = kernels.cached_kernel(made_by, width, form.group, form.sums)
        parts = graph.call_tir(kernel, made_by.__name__, [x], out)
        graph.memo[key] = graph.items(parts, len(out))
    return list(graph.memo[key])


def _scheme(how: str | Scheme) -> Scheme:
    return scheme(how) if isinstance(how, str) else how
