"""Attention over paged keys and values on a GPU, causal or not, decode and prefill rows mixed.

Two kernels: `attend_ranges` computes ranges of keys of the sequences with one token (`decode.py`),
`attend` merges them and computes the sequences with several (`prefill.py`). On GPUs whose
workgroups may wait for each other's results it is one (`one_launch.py`). How a sequence is cut
depends on its own lengths only, so results do not depend on neighbours. Keys and values are already
appended (`kv.py`) and rotated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir.graph import Graph, dims, dtype_of, tensor
from mlcc_compiler.ir.graph import sizes as static_sizes
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.kernels.frame import SIZE, Expr, PrimFunc, activations, f32, kernel
from mlcc_compiler.kernels.gpu.attention import mma_prefill
from mlcc_compiler.kernels.gpu.attention.decode import attend_ranges
from mlcc_compiler.kernels.gpu.attention.matrix_prefill import MatrixPlan, matrix_prefill
from mlcc_compiler.kernels.gpu.attention.merge import merge_ranges
from mlcc_compiler.kernels.gpu.attention.one_launch import attend_at_once, counters_of
from mlcc_compiler.kernels.gpu.attention.plan import range_items
from mlcc_compiler.kernels.gpu.attention.prefill import prefill
from mlcc_compiler.kernels.gpu.attention.sequences import PagedSequences, arguments
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_outputs import words_of
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import clear
from mlcc_compiler.kernels.gpu.workgroup import when
from mlcc_compiler.kernels.kernel_set import KernelSet


def emit_attention(
    kernels: KernelSet,
    graph: Graph,
    inputs: Sequence[Any],
    sizes: tuple[Any, Any],
    shape: AttentionShape,
    layout: KvLayout,
) -> Any:
    """Emit attention of inputs: q f32[n, heads, head_dim], sinks f32[heads] where there are any,
    pages kv_dtype[num_pages, 2, kv_heads, page_size, head_dim], the scales of 8-bit ones, step.
    sizes: (sequences, entries of the group's page list).

    The last query of a sequence sits at its last key. A query at position i sees keys j <= i, with
    a window w only j > i - w; not causal, all keys, with a window those of |i - j| < w. The step's
    columns `visible_until` and `visible_from`, where the shape has them, bound j instead. Pages
    that no query sees are not read. Tokens beyond the step's own get zeros. Where n <= b, no
    sequence may have more than one token: that is a pure decode step, and the prefill is not
    started.
    """
    num_queries, rest = inputs[: shape.num_queries], inputs[shape.num_queries :]
    (q, *sinks), (sequences, pages) = num_queries, sizes
    inputs, gpu = [q, *rest], kernels.device
    items = range_items(pages, sequences, layout.page_size)
    scratch = [tensor([items, shape.heads, shape.head_dim]), tensor([items, shape.heads, 2])]
    if takes_one_launch(gpu, shape):
        made = kernels.cached_kernel(attend_at_once, shape, layout, _prefill)
        counters = emit_counters(kernels, graph, q, counters_of(gpu, shape, layout))
        given = [*inputs, counters, *sinks, sequences]
        out = [*scratch, tensor(dims(q), dtype_of(q))]
        if shape.rounded:
            words = words_of(shape.rounded, shape.heads * shape.head_dim)
            out.append(tensor([dims(q)[0], words], "uint32"))
        return graph.items(graph.call_tir(made, "attend", given, out), len(out))[-1]
    first = kernels.cached_kernel(attend_ranges, shape, layout)
    parts = graph.items(graph.call_tir(first, "attend_ranges", inputs, scratch), 2)
    second = kernels.cached_kernel(attend, shape, layout)
    return graph.call_tir(
        second, "attend", [*inputs, *parts, *sinks, sequences], tensor(dims(q), dtype_of(q))
    )


def takes_one_launch(gpu: Gpu, shape: AttentionShape) -> bool:
    """Whether decode attention merges its ranges in the launch that computes them."""
    return gpu.fragments and shape.head_dim % UNIT == 0


def emit_counters(kernels: KernelSet, graph: Graph, q: Any, count: int) -> Any:
    """Emit the clearing of that many counters, once a step."""
    key = "counters", count
    if key not in graph.memo:
        made = kernels.cached_kernel(clear, static_sizes(q), dtype_of(q), count)
        out = tensor([count], "int32")
        graph.memo[key] = graph.call_tir(made, "clear_counters", [q], out)
    return graph.memo[key]


def attend(gpu: Gpu, shape: AttentionShape, layout: KvLayout) -> PrimFunc:
    """(the arguments of `sequences.arguments`, sums and stats of `attend_ranges`, [sinks], b) ->
    f32[n, heads, head_dim]."""

    def body(q: Expr, *rest: Expr) -> None:
        *before, most, out = rest
        sinks = before.pop() if shape.sinks else None
        *pages, words, sums, stats = before
        sequences = PagedSequences(shape, layout, words)
        merge_ranges(gpu, sequences, most, sums, stats, out, sinks)
        with when(q.shape[0] > most):
            _prefill(gpu, sequences, most, q, pages, out, sinks)

    parts, stats = f32("items", shape.heads, shape.head_dim), f32("items", shape.heads, 2)
    rows = activations(gpu, "n", shape.heads, shape.head_dim)
    before = arguments(gpu, shape, layout)
    sinks = {"sinks": f32(shape.heads)} if shape.sinks else {}
    return kernel(body, **before, sums=parts, stats=stats, **sinks, sequences=SIZE, out=rows)


def _prefill(gpu: Gpu, sequences: PagedSequences, *arguments: Any) -> None:
    """By matrix instructions where the device has them, a tile fits, and pages are no float32; by
    `mma` where its order of weights is known."""
    exact = sequences.layout.tensors[0].dtype == "float32"
    flash = None if exact else mma_prefill.plan_of(gpu, sequences.shape)
    if flash is not None:
        mma_prefill.mma_prefill(gpu, flash, sequences, *arguments)
        return
    plan = None if exact else MatrixPlan.of(gpu, sequences.shape)
    if plan is None:
        prefill(gpu, sequences, *arguments)
    else:
        matrix_prefill(gpu, plan, sequences, *arguments)
