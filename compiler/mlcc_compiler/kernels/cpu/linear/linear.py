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
from mlcc_compiler.kernels.cpu.linear.amx_gated import activated_many, gated_many
from mlcc_compiler.kernels.cpu.linear.amx_gemm import linear_many, uses_amx
from mlcc_compiler.kernels.cpu.linear.amx_rows import (
    TILE,
    quantize_few,
    round_to_tiles,
    rows_or_tiles,
    tiles_of,
)
from mlcc_compiler.kernels.cpu.linear.bf16 import linear_bf16, round_rows, uses_bf16_dot
from mlcc_compiler.kernels.cpu.linear.floats import linear_float
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking, RowForm, row_form
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

_TILES = "tiles"
"""Key of `Graph.memo`, with an array: its tiles, which the kernel that makes it has written."""


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


def emit_gated_linear(
    kernels: KernelSet,
    graph: Graph,
    x: Any,
    weight: Weight | Merged,
    *rest: Any,
    out: Any,
) -> Any:
    """Emit gate and up, one weight or two, with their activation: `rest` is [bias], kind. The
    tiles of many rows are kept for the readers of the value, which itself has few rows only."""
    *bias, kind = rest
    parts = tuple((m.plan.shape[0], _scheme(m.plan.scheme)) for m in weight.members)
    rows, k = dims(x)
    inner = sum(n for n, _ in parts) // 2
    kernel = kernels.cached_kernel(gated_many, parts, k, bool(bias), kind)
    inputs = _inputs(kernels, graph, x, weight.members[0])
    made = [tensor([rows, 2 * inner]), tensor([tiles_of(rows, inner), TILE], "uint16")]
    call = graph.call_tir(kernel, "gated_linear", [*inputs, *weight.tensors, *bias], made)
    both, tiles = graph.items(call, 2)
    few = kernels.kernel("gated_few", (2 * inner,), kind, parts[0][1].is_float)
    products = graph.call_tir(few, "gated_few", [both], out)
    graph.memo[_TILES, products] = tiles
    return products


def emit_activated_linear(
    kernels: KernelSet,
    graph: Graph,
    x: Any,
    weight: Weight,
    *rest: Any,
    out: Any,
) -> Any:
    """Emit a linear layer with its activation: `rest` is [bias], kind. As `emit_gated_linear`."""
    *bias, kind = rest
    (width, k), how = weight.plan.shape, _scheme(weight.plan.scheme)
    rows = dims(x)[0]
    kernel = kernels.cached_kernel(activated_many, width, how, k, bool(bias), kind)
    inputs = _inputs(kernels, graph, x, weight)
    made = [tensor([rows, width]), tensor([tiles_of(rows, width), TILE], "uint16")]
    call = graph.call_tir(kernel, "activated_linear", [*inputs, *weight.tensors, *bias], made)
    sums, tiles = graph.items(call, 2)
    few = kernels.kernel("activated_few", (width,), kind, how.is_float)
    found = graph.call_tir(few, "activated_few", [sums], out)
    graph.memo[_TILES, found] = tiles
    return found


def _inputs(kernels: KernelSet, graph: Graph, x: Any, weight: Weight) -> list[Any]:
    """x in the forms that the product takes."""
    (_, width), how = dims(x), _scheme(weight.plan.scheme)
    if uses_amx(kernels.device, width, how):
        return _rows_or_tiles(kernels, graph, x, weight)
    if uses_bf16_dot(kernels.device, width, how):
        return _made_once(kernels, graph, round_rows, x, (), [tensor(dims(x), "uint16")])
    return inputs_of(kernels, graph, x, weight)


def _rows_or_tiles(kernels: KernelSet, graph: Graph, x: Any, weight: Weight) -> list[Any]:
    """Inputs of `linear_many`: x as few rows are multiplied, and the tiles of many rows."""
    tiles = tensor([tiles_of(*dims(x)), TILE], "uint16")
    made = graph.memo.get((_TILES, x))
    if not needs_quantized_rows(weight.plan.scheme):
        if made is None:
            (made,) = _made_once(kernels, graph, round_to_tiles, x, (), [tiles])
        return [x, made]
    form = row_form(_scheme(weight.plan.scheme), weight.plan.shape[-1])
    codes, sizes = _quantized(kernels, x, form), (form.group, form.sums)
    if made is None:
        return _made_once(kernels, graph, rows_or_tiles, x, sizes, [*codes, tiles])
    return [*_made_once(kernels, graph, quantize_few, x, sizes, codes), made]


def inputs_of(kernels: KernelSet, graph: Graph, x: Any, weight: Weight) -> list[Any]:
    """x, or its quantized form: int8 codes, scales and sums of x's groups, shared by all readers of
    x with that form."""
    if not needs_quantized_rows(weight.plan.scheme):
        return [x]
    form = row_form(_scheme(weight.plan.scheme), weight.plan.shape[-1])
    out = _quantized(kernels, x, form)
    return _made_once(kernels, graph, quantize_rows, x, (form.group, form.sums), out)


def _quantized(kernels: KernelSet, x: Any, form: RowForm) -> list[Any]:
    """Types of the outputs of `quantize_rows`."""
    rows, width = dims(x)
    every = width * kernels.device.activation_parts
    scales, sums = [rows, every // form.group], [rows, every // form.sums]
    return [tensor([rows, every], "int8"), tensor(scales), tensor(sums, "int32")]


def _made_once(
    kernels: KernelSet,
    graph: Graph,
    factory: Callable[..., Any],
    x: Any,
    form: tuple[int, ...],
    out: list[Any],
) -> list[Any]:
    """The outputs of the kernel that makes a form of x, shared by all readers of x in that form."""
    key = (factory.__name__, x, *form)
    if key not in graph.memo:
        kernel = kernels.cached_kernel(factory, dims(x)[1], *form)
        made = graph.call_tir(kernel, factory.__name__, [x], out if len(out) > 1 else out[0])
        graph.memo[key] = graph.items(made, len(out)) if len(out) > 1 else [made]
    return list(graph.memo[key])


def _scheme(how: str | Scheme) -> Scheme:
    return scheme(how) if isinstance(how, str) else how
