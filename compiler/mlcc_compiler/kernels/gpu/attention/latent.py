"""Latent attention (DeepSeek-AI, 2024) over pages of latents, absorbed form, on a GPU.

One key of rank + rope numbers for all heads, whose first `rank` are the value. A workgroup takes a
tile of query rows (a row is a token and a head, so that a decode step fills a tile too) and goes
through keys, a block at a time, with a running maximum and sum per row (FlashAttention, Dao et al.,
2022). Queries and keys pass through workgroup memory in slices; of the values each thread owns
some columns for all rows and reads them as they lie, neighbouring threads neighbouring columns.

Sequences with one token are cut into ranges of keys, which `merge` joins (Flash-Decoding, Dao et
al., 2023), by their own lengths only, as in `attention.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    kernel,
    tensor_argument,
)
from mlcc_compiler.kernels.gpu.attention.decode import first_item
from mlcc_compiler.kernels.gpu.attention.latent_tile import MOST_ROWS, LatentPlan, Tile
from mlcc_compiler.kernels.gpu.attention.merge import merge_ranges
from mlcc_compiler.kernels.gpu.attention.mla_cache import latent_query, latent_value
from mlcc_compiler.kernels.gpu.attention.plan import pages_per_range, range_items
from mlcc_compiler.kernels.gpu.attention.sequences import PagedSequence, PagedSequences
from mlcc_compiler.kernels.gpu.attention.tiles import each_tile
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    bind,
    launch,
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
    kernel = kernels.cached_kernel(attend_latent_ranges, layout)
    scratch = [tensor([items, heads, shape.rank]), tensor([items, heads, 2])]
    pair = graph.call_tir(kernel, "attend_latent_ranges", [asked, *cache], scratch)
    kernel, out = (
        kernels.cached_kernel(attend_latents, layout),
        tensor([rows, heads, shape.rank], dtype),
    )
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
    plan = LatentPlan.of(gpu, shape, shape.heads)
    keys = pages_per_range(layout.page_size) * layout.page_size

    def body(q: Expr, pages: Expr, words: Expr, sums: Expr, stats: Expr) -> None:
        sequences = _sequences(layout, words)
        grid = (sums.shape[0], shape.heads // plan.heads)
        with (
            launch(grid, (plan.threads,)) as (item, part, thread),
            when(item < first_item(sequences, sequences.count)),
        ):
            sequence = sequences.of(sequences.find(lambda s: first_item(sequences, s), item))
            begin = bind((item - first_item(sequences, sequence.index)) * keys)
            end = bind(T.min(begin + keys, sequence.keys))
            with when(tirx.all(sequence.tokens == 1, begin < end)):
                head = bind(part * plan.heads)
                tile = Tile(shape, plan, sequences, sequence, T.int32(0), T.int32(1), thread)
                tile.run(q, pages, head, begin, end)
                tile.store_partial(sums, stats, item, head)

    parts, stats = f32("items", shape.heads, shape.rank), f32("items", shape.heads, 2)
    return kernel(body, **_arguments(gpu, layout), sums=parts, stats=stats)


def attend_latents(gpu: Gpu, layout: MlaLayout) -> PrimFunc:
    """(q, pages, step, sums and stats of `attend_latent_ranges`, b) -> f32[n, heads, rank]."""
    shape = layout.shape

    def body(
        q: Expr, pages: Expr, words: Expr, sums: Expr, stats: Expr, most: Expr, out: Expr
    ) -> None:
        sequences = _sequences(layout, words)
        merge_ranges(gpu, sequences, most, sums, stats, out)
        plan = LatentPlan.of(gpu, shape, MOST_ROWS)

        def run(
            sequence: PagedSequence, start: Expr, count: Expr, part: Expr, thread: Expr
        ) -> None:
            head = bind(part * plan.heads)
            tile = Tile(shape, plan, sequences, sequence, start, count, thread)
            tile.run(q, pages, head, T.int32(0), bind(tile.position + count))
            tile.finish(out, head)

        with when(q.shape[0] > most):
            each_tile(sequences, plan, shape.heads // plan.heads, most, out, run)

    parts, stats = f32("items", shape.heads, shape.rank), f32("items", shape.heads, 2)
    arguments = {**_arguments(gpu, layout), "sums": parts, "stats": stats}
    out = activations(gpu, "n", shape.heads, shape.rank)
    return kernel(body, **arguments, sequences=SIZE, out=out)


def _arguments(gpu: Gpu, layout: MlaLayout) -> dict[str, Argument]:
    q = activations(gpu, "n", layout.shape.heads, layout.shape.width)
    return {"q": q, "pages": tensor_argument(layout.pages), "step": step_argument(layout.step)}


def _sequences(layout: MlaLayout, words: Expr) -> PagedSequences:
    """The paged sequences, with outputs as heads of `rank` numbers."""
    shape = layout.shape
    pairs = KvLayout(layout.page_size, layout.dtype, 1, shape.width, layout.step, layout.group)
    return PagedSequences(AttentionShape(shape.heads, 1, shape.rank, shape.scale), pairs, words)
