"""Causal attention over paged keys and values on a GPU, decode and prefill rows mixed.

Two kernels: `attend_ranges` computes ranges of keys of the sequences with one token
(`attention_decode`), `attend` merges them and computes the sequences with several
(`attention_prefill`). How a sequence is cut follows from its own lengths only, so results do not
depend on neighbours. Keys and values are appended (`kv.py`) and rotated already.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, kernel
from mlcc_compiler.kernels.gpu.attention_batch import AttentionShape, Batch
from mlcc_compiler.kernels.gpu.attention_decode import attend_ranges
from mlcc_compiler.kernels.gpu.attention_merge import merge_ranges
from mlcc_compiler.kernels.gpu.attention_plan import range_items
from mlcc_compiler.kernels.gpu.attention_prefill import prefill
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import int32, when
from mlcc_compiler.passes.rewrite import dims, tensor

if TYPE_CHECKING:
    from mlcc_compiler.passes.paged_kv import KvLayout
    from mlcc_compiler.passes.rewrite import Rewriter


def paged_attention(
    gpu: Gpu,
    graph: Rewriter,
    inputs: Sequence[Any],
    layout: KvLayout,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Any:
    """Emit attention of inputs: q f32[n, heads, head_dim], pages
    kv_dtype[num_pages, 2, kv_heads, page_size, head_dim], qo_indptr i32[b + 1],
    page_indptr i32[b + 1], page_indices i32[p], last_page_len i32[b].

    The last query of a sequence sits at its last key. A query at position i sees keys j <= i, with
    a window w only j > i - w; pages that no query sees are not read and may be -1. Tokens behind
    qo_indptr[b] get zeros. Where n <= b, no sequence may have more than one token: that is a pure
    decode step, and the prefill is not started.
    """
    q, *_, indices, last = inputs
    rows = dims(q)
    fields = (
        rows[1],
        layout.kv_heads,
        layout.head_dim,
        layout.page_size,
        scale,
        window,
        softcap,
        layout.dtype,
    )
    items = range_items(dims(indices)[0], dims(last)[0], layout.page_size)
    scratch = [tensor([items, rows[1], layout.head_dim]), tensor([items, rows[1], 2])]
    ranges = graph.call_tir(attend_ranges(gpu, *fields), "attend_ranges", inputs, scratch)
    parts = graph.items(ranges, 2)
    return graph.call_tir(attend(gpu, *fields), "attend", [*inputs, *parts], tensor(rows))


@cache  # layers share kernels
def attend(
    gpu: Gpu,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page_size: int,
    scale: float,
    window: int | None,
    softcap: float | None,
    kv_dtype: str,
) -> PrimFunc:
    """(the arguments of `AttentionShape.arguments`, sums and stats of `attend_ranges`) ->
    f32[n, heads, head_dim]."""
    shape = AttentionShape(heads, kv_heads, head_dim, page_size, scale, window, softcap, kv_dtype)

    def body(q: Expr, pages: Expr, *rest: Expr) -> None:
        *arrays, sums, stats, out = rest
        batch = Batch(shape, *arrays)
        tokens = int32(q.shape[0])
        merge_ranges(gpu, batch, tokens, sums, stats, out)
        with when(q.shape[0] > batch.last.shape[0]):
            prefill(gpu, batch, q, pages, out)

    parts, stats = f32("items", heads, head_dim), f32("items", heads, 2)
    rows = f32("n", heads, head_dim)
    return kernel(body, **shape.arguments(), sums=parts, stats=stats, out=rows)
