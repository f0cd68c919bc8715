"""Latent attention (DeepSeek-AI, 2024) over pages of latents, absorbed form, on a GPU.

One key of rank + rope numbers for all heads, whose first `rank` are the value. A workgroup takes a
tile of query rows (a row is a token and a head, so that a decode step fills a tile too) and goes
through keys, a block at a time, with a running maximum and sum per row (FlashAttention, Dao et al.,
2022). Queries and keys pass through workgroup memory in slices; of the values each thread owns
some columns for all rows and reads them as they lie, neighbouring threads neighbouring columns.

Sequences with one token are cut into ranges of keys, which `merge` joins (Flash-Decoding, Dao et
al., 2023), by their own lengths only, as in `attention.py`; in one launch where that has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.ir.graph import Graph, dims, dtype_of, tensor
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.ir.mla import MlaLayout, MlaShape
from mlcc_compiler.kernels.frame import (
    SIZE,
    Argument,
    Expr,
    PrimFunc,
    activations,
    f32,
    i32,
    kernel,
    tensor_argument,
)
from mlcc_compiler.kernels.gpu.attention import mma_latent
from mlcc_compiler.kernels.gpu.attention.attention import emit_counters
from mlcc_compiler.kernels.gpu.attention.decode import first_item
from mlcc_compiler.kernels.gpu.attention.latent_tile import MOST_ROWS, LatentPlan, Tile
from mlcc_compiler.kernels.gpu.attention.merge import merge_ranges
from mlcc_compiler.kernels.gpu.attention.mla_cache import latent_query, latent_value
from mlcc_compiler.kernels.gpu.attention.one_launch import RangeMerge
from mlcc_compiler.kernels.gpu.attention.plan import pages_per_range, range_items
from mlcc_compiler.kernels.gpu.attention.sequences import PagedSequence, PagedSequences
from mlcc_compiler.kernels.gpu.attention.tiles import each_tile
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy
from mlcc_compiler.kernels.gpu.workgroup import (
    bind,
    launch,
    shared,
    when,
)
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.step import step_argument


def emit_latent_attention(
    kernels: KernelSet,
    graph: Graph,
    inputs: Sequence[Any],
    sizes: tuple[Any, Any],
    shape: MlaShape,
    layout: MlaLayout,
) -> Any:
    """Emit attention of inputs: q f32[n, heads, nope + rope], kv_b_proj's weight, the table of
    rotations, pages and step; returns f32[n, heads, value]. Otherwise as `emit_attention`."""
    q, weight, table, *cache = inputs
    sequences, entries = sizes
    rows, heads, items = dims(q)[0], shape.heads, range_items(entries, sequences, layout.page_size)
    dtype = dtype_of(q)
    kernel, out = (
        kernels.cached_kernel(latent_query, shape),
        tensor([rows, heads, shape.width], dtype),
    )
    asked = graph.call_tir(kernel, "latent_query", [q, weight, table], out)
    scratch = [tensor([items, heads, shape.rank]), tensor([items, heads, 2])]
    out = tensor([rows, heads, shape.rank], dtype)
    if takes_one_launch(kernels.device, layout):
        count = counters_of(kernels.device, layout)
        counters = emit_counters(kernels, graph, asked, count)
        kernel = kernels.cached_kernel(attend_latents_at_once, layout)
        given = [asked, *cache, counters, sequences]
        sums = graph.items(graph.call_tir(kernel, "attend_latents", given, [*scratch, out]), 3)[-1]
    else:
        kernel = kernels.cached_kernel(attend_latent_ranges, layout)
        pair = graph.call_tir(kernel, "attend_latent_ranges", [asked, *cache], scratch)
        kernel = kernels.cached_kernel(attend_latents, layout)
        arguments = [asked, *cache, *graph.items(pair, 2), sequences]
        sums = graph.call_tir(kernel, "attend_latents", arguments, out)
    kernel, out = (
        kernels.cached_kernel(latent_value, shape),
        tensor([rows, heads, shape.value], dtype),
    )
    return graph.call_tir(kernel, "latent_value", [sums, weight], out)


def attend_latent_ranges(gpu: Gpu, layout: MlaLayout) -> PrimFunc:
    """(q, pages, step) -> sums f32[items, heads, rank] of values weighted by e ** (score -
    largest), stats f32[items, heads, 2]: the largest score and the sum of the weights.

    For sequences with one token; cells of other items are left unchanged.
    """
    shape = layout.shape

    def body(q: Expr, pages: Expr, words: Expr, sums: Expr, stats: Expr) -> None:
        _ranges(gpu, layout, _sequences(layout, words), q, pages, (sums, stats))

    parts, stats = f32("items", shape.heads, shape.rank), f32("items", shape.heads, 2)
    return kernel(body, **_arguments(gpu, layout), sums=parts, stats=stats)


def _ranges(
    gpu: Gpu,
    layout: MlaLayout,
    sequences: PagedSequences,
    q: Expr,
    pages: Expr,
    partial: tuple[Any, Any],
    merge: RangeMerge | None = None,
    counters: Any = None,
) -> None:
    """Emit the launch for ranges of keys. merge: by the last workgroup of a sequence's heads."""
    shape, (sums, stats) = layout.shape, partial
    plan = LatentPlan.of(gpu, shape, shape.heads)
    parts, keys = shape.heads // plan.heads, pages_per_range(layout.page_size) * layout.page_size
    with launch((sums.shape[0], parts), (plan.threads,)) as (item, part, thread):
        head = bind(part * plan.heads)
        if merge is not None:
            merge.clear(item, head, thread)
        with when(item < first_item(sequences, sequences.count)):
            sequence = sequences.of(sequences.find(lambda s: first_item(sequences, s), item))
            begin = bind((item - first_item(sequences, sequence.index)) * keys)
            end = bind(T.min(begin + keys, sequence.keys))
            with when(tirx.all(sequence.tokens == 1, begin < end)):
                tile = Tile(shape, plan, sequences, sequence, T.int32(0), T.int32(1), thread)
                tile.run(q, pages, head, begin, end)
                tile.store_partial(sums, stats, item, head)
                if merge is not None:
                    first, count = merge.ranges(sequence)
                    counter = counters[sequence.index * parts + part]
                    weights = shared((plan.heads, merge.plan.score_columns))
                    with when(async_copy.is_last(counter, count)):
                        merge.add(thread, weights, sequence, first, count, head)


@dataclass(frozen=True)
class _MergePlan:
    """See `MergePlan`."""

    threads: int
    keys: int
    dim: int
    heads: int
    score_columns: int = 32


def counters_of(gpu: Gpu, layout: MlaLayout) -> int:
    """Counters of `attend_latents_at_once`: one for each sequence and part of its heads."""
    plan = LatentPlan.of(gpu, layout.shape, layout.shape.heads)
    return int(layout.step.max_sequences * (layout.shape.heads // plan.heads))


def takes_one_launch(gpu: Gpu, layout: MlaLayout) -> bool:
    """Whether ranges are merged in the launch that computes them."""
    return gpu.fragments and layout.shape.rank % UNIT == 0


def attend_latents_at_once(gpu: Gpu, layout: MlaLayout) -> PrimFunc:
    """(q, pages, step, counters i32[counters_of], all 0 before and after, b) -> (sums and stats of
    `attend_latent_ranges`, f32[n, heads, rank])."""
    shape, plan = layout.shape, LatentPlan.of(gpu, layout.shape, layout.shape.heads)
    keys = pages_per_range(layout.page_size) * layout.page_size
    merging = _MergePlan(plan.threads, keys, shape.rank, plan.heads)

    def body(q: Expr, pages: Expr, words: Expr, counters: Expr, most: Expr, *made: Expr) -> None:
        sequences, (sums, stats, out) = _sequences(layout, words), made
        decodes = q.shape[0] <= most
        merge = RangeMerge(gpu, merging, sequences, (sums, stats), (out,), decodes)
        _ranges(gpu, layout, sequences, q, pages, (sums, stats), merge, counters)
        _prompts(gpu, layout, sequences, q, pages, most, out)

    given = {**_arguments(gpu, layout), "counters": i32(counters_of(gpu, layout))}
    made = {"sums": f32("items", shape.heads, shape.rank), "stats": f32("items", shape.heads, 2)}
    made["out"] = activations(gpu, "n", shape.heads, shape.rank)
    return kernel(body, **given, sequences=SIZE, **made)


def attend_latents(gpu: Gpu, layout: MlaLayout) -> PrimFunc:
    """(q, pages, step, sums and stats of `attend_latent_ranges`, b) -> f32[n, heads, rank]."""
    shape = layout.shape

    def body(
        q: Expr, pages: Expr, words: Expr, sums: Expr, stats: Expr, most: Expr, out: Expr
    ) -> None:
        sequences = _sequences(layout, words)
        merge_ranges(gpu, sequences, most, sums, stats, out)
        _prompts(gpu, layout, sequences, q, pages, most, out)

    parts, stats = f32("items", shape.heads, shape.rank), f32("items", shape.heads, 2)
    arguments = {**_arguments(gpu, layout), "sums": parts, "stats": stats}
    out = activations(gpu, "n", shape.heads, shape.rank)
    return kernel(body, **arguments, sequences=SIZE, out=out)


def _prompts(
    gpu: Gpu,
    layout: MlaLayout,
    sequences: PagedSequences,
    q: Any,
    pages: Expr,
    most: Expr,
    out: Expr,
) -> None:
    """Emit the launch for sequences of several tokens, by `mma` where a tile of that fits."""
    shape, plan = layout.shape, LatentPlan.of(gpu, layout.shape, MOST_ROWS)
    flash = mma_latent.plan_of(gpu, layout)

    def run(sequence: PagedSequence, start: Expr, count: Expr, part: Expr, thread: Expr) -> None:
        head = bind(part * plan.heads)
        tile = Tile(shape, plan, sequences, sequence, start, count, thread)
        tile.run(q, pages, head, T.int32(0), bind(tile.position + count))
        tile.finish(out, head)

    with when(q.shape[0] > most):
        if flash is not None:
            mma_latent.mma_latent(flash, layout, sequences, q, pages, most, out)
        else:
            each_tile(sequences, plan, shape.heads // plan.heads, most, out, run)


def _arguments(gpu: Gpu, layout: MlaLayout) -> dict[str, Argument]:
    q = activations(gpu, "n", layout.shape.heads, layout.shape.width)
    return {"q": q, "pages": tensor_argument(layout.pages), "step": step_argument(layout.step)}


def _sequences(layout: MlaLayout, words: Expr) -> PagedSequences:
    """The paged sequences, with outputs as heads of `rank` numbers."""
    shape = layout.shape
    pairs = KvLayout(layout.page_size, layout.dtype, 1, shape.width, layout.step, layout.group)
    return PagedSequences(AttentionShape(shape.heads, 1, shape.rank, shape.scale), pairs, words)
