"""Kernels that move keys and values: into pages, and between pages.

Pages follow PagedAttention (Kwon et al., 2023): [num_pages, 2 (keys, values), kv_heads, page_size,
head_dim]. Both write their last argument in place, for R.call_tir_inplace.
"""

from __future__ import annotations

from math import prod

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheTensor
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.frame import (
    SIZE,
    Expr,
    PrimFunc,
    activations,
    i32,
    kernel,
    page_arguments,
    store,
    tensor_argument,
    unravel_index,
)
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element
from mlcc_compiler.kernels.gpu.elementwise.norm import each_lane, row_factor
from mlcc_compiler.kernels.gpu.elementwise.rope import turned
from mlcc_compiler.kernels.gpu.kv_cache.quantized import LANES, RoundedHead, append_quantized
from mlcc_compiler.kernels.gpu.workgroup import bind, ceil_div, clamp_f16, int32, launch, real, when
from mlcc_compiler.kernels.step import Step, step_argument
from mlcc_compiler.kernels.step_arguments import rotated_arguments


def stored(value: Expr, kv_dtype: str) -> Expr:
    """A key's or value's element in the pages' dtype, clamped to finite values: an infinity would
    corrupt the sequence."""
    return clamp_f16(value).astype(kv_dtype) if kv_dtype == "float16" else value


def append_kv(gpu: Gpu, layout: KvLayout) -> PrimFunc:
    """(k f32[n, kv_heads, head_dim], v likewise, token_slots i32[n], pages) -> pages, in place.

    Token i goes to page slot // page_size at offset slot % page_size; slot -1 writes nothing. 8-bit
    pages also have scales: `append_quantized`.
    """
    if layout.has_scales:
        return append_quantized(gpu, layout)
    kv_heads, head_dim, page_size = layout.kv_heads, layout.head_dim, layout.page_size

    def body(k: Expr, v: Expr, slots: Expr, pages: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            h, d = bind(j // head_dim), bind(j % head_dim)
            slot = bind(slots[i])
            with when(slot >= 0):
                page, offset = bind(slot // page_size), bind(slot % page_size)
                store(pages, stored(k[i, h, d], layout.dtype), page, 0, h, offset, d)
                store(pages, stored(v[i, h, d], layout.dtype), page, 1, h, offset, d)

        each_element(gpu, slots.shape[0], kv_heads * head_dim, element)

    rows = activations(gpu, "n", kv_heads, head_dim)
    return kernel(body, k=rows, v=rows, token_slots=i32("n"), **page_arguments(layout))


def rotate_and_append(
    gpu: Gpu, layout: KvLayout, heads: int, rotary_dim: int, norm: tuple[float, float] | None
) -> PrimFunc:
    """(qkv f32[n, (heads + 2 * kv_heads) * head_dim], table f32[n, rotary_dim], with a norm the
    weights of q's and k's f32[head_dim], token_slots i32[n], pages, the scales of 8-bit pages) ->
    pages and scales in place, q f32[n, heads, head_dim].

    A team of threads takes one head of one token: normalises and rotates queries and keys, and
    writes the head where attention reads it. norm: (eps, offset).
    """
    kv_heads, head_dim, page_size = layout.kv_heads, layout.head_dim, layout.page_size
    lanes = LANES
    teams, parts = gpu.threads // lanes, heads + 2 * kv_heads

    def body(qkv: Expr, table: Expr, *rest: Expr) -> None:
        *weights, slots, pages, q = rest[:-2] + rest[-1:] if layout.has_scales else rest
        count = int32(slots.shape[0]) * parts
        grid = (ceil_div(slots.shape[0] * parts, teams),)
        with launch(grid, (lanes, teams)) as (block, lane, team):
            task = bind(T.min(block * teams + team, count - 1))
            i, part = bind(task // parts), bind(task % parts)
            # 0 query, 1 key, 2 value; no division, which in TVM takes 64 bits if one may be < 0.
            key_or_value = T.if_then_else(part < heads + kv_heads, 1, 2)
            kind = bind(T.if_then_else(part < heads, 0, key_or_value))
            first = bind(part * head_dim)
            factor = T.float32(1)
            if norm:
                factor = row_factor(
                    gpu, lambda d: qkv[i, first + d], head_dim, norm[0], lane, lanes, team, teams
                )

            def value(d: Expr) -> Expr:
                x = qkv[i, first + d]
                if not norm:
                    return x
                weight = T.if_then_else(kind == 0, weights[0][d], weights[1][d])
                return T.if_then_else(kind == 2, x, x * factor * (weight + real(norm[1])))

            def ready(d: Expr) -> Expr:
                rotated = turned(value, table, i, d, rotary_dim)
                return bind(T.if_then_else(kind == 2, value(d), rotated))

            def element(d: Expr) -> None:
                x = ready(d)
                with T.If(kind == 0):
                    with T.Then():
                        store(q, x, i, part, d)
                    with T.Else():
                        slot = bind(slots[i])
                        with when(slot >= 0):
                            h = part - heads - (kind - 1) * kv_heads
                            page, offset = slot // page_size, slot % page_size
                            store(pages, stored(x, layout.dtype), page, kind - 1, h, offset, d)

            inside = block * teams + team < count
            if not layout.has_scales:
                with when(inside):
                    each_lane(head_dim, lanes, lane, element)
                return
            head = RoundedHead(gpu, head_dim, ready, lane, team, teams)
            with when(inside), T.If(kind == 0):
                with T.Then():
                    head.copy(q, i, part)
                with T.Else():
                    slot = bind(slots[i])
                    with when(slot >= 0):
                        h = bind(part - heads - (kind - 1) * kv_heads)
                        head.store(layout, pages, rest[-2], slot, kind - 1, h)

    return kernel(body, **rotated_arguments(gpu, layout, heads, rotary_dim, norm is not None))


def copy_pages(gpu: Gpu, kept: CacheTensor, layout: StepLayout, group: int) -> PrimFunc:
    """(step, tensor, c) -> tensor, in place, after the first c copies of the step for this group. A
    page, or a state's slot, may be of any shape."""

    def body(words: Expr, tensor: Expr, count: Expr) -> None:
        step = Step(layout, words)

        def element(i: Expr, j: Expr) -> None:
            with when(step.copy(i, "group") == group):
                old, new = bind(step.copy(i, "source")), bind(step.copy(i, "destination"))
                at = [bind(index) for index in unravel_index(j, kept.shape)]
                source = (old, *at)
                store(tensor, tensor[source], new, *at)

        each_element(gpu, count, prod(kept.shape), element)

    return kernel(body, step=step_argument(layout), tensor=tensor_argument(kept), count=SIZE)
