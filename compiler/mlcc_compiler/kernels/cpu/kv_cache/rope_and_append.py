"""Fused kernel between the merged q, k, v product and attention: norm, rotation, and append of k
and v to the pages.

One kernel where `norm`, `rope` and `append` are five; a row is read once, and a head is normalised
and rotated in registers. The arithmetic is identical, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.cpu.elementwise.norm import Normalise
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, cast, each, fit_lanes, span, spread
from mlcc_compiler.kernels.cpu.kv_cache.int8 import keep_head
from mlcc_compiler.kernels.cpu.kv_cache.layout import kv_place
from mlcc_compiler.kernels.frame import (
    Expr,
    PrimFunc,
    kernel,
    store,
)
from mlcc_compiler.kernels.step_arguments import rotated_arguments

Load = Callable[[Expr, int], Expr]
"""(first element of a head, count) -> the elements."""
Write = Callable[[Expr, Expr, int], None]
"""(first element, value, count)."""


def rotate_and_append(
    isa: Isa, layout: KvLayout, heads: int, rotary_dim: int, norm: tuple[float, float] | None
) -> PrimFunc:
    """(qkv f32[n, (heads + 2 * kv_heads) * head_dim], table f32[n, rotary_dim], with a norm the
    weights of q's and k's f32[head_dim], token_slots i32[n], pages, the scales of 8-bit ones) ->
    pages and scales in place, q f32[n, heads, head_dim].

    norm: (eps, offset). Slots are those of `kv.append_kv`.
    """
    kv_heads, head_dim, page_size = layout.kv_heads, layout.head_dim, layout.page_size
    width = (heads + 2 * kv_heads) * head_dim

    def body(qkv: Expr, table: Expr, *rest: Expr) -> None:
        *weights, slots, pages = rest[: 4 if norm else 2]
        *scales, q = rest[4 if norm else 2 :]
        turn = partial(_turn, table, head_dim, rotary_dim, isa.lanes)

        def ready(i: Expr, first: Expr, which: int) -> Load:
            """A head of queries (0) or keys (1), normalised."""

            def plain(j: Expr, k: int) -> Expr:
                return qkv[i, span(first + j, k)]

            if not norm:
                return plain
            normalise = Normalise(head_dim, norm[0], isa.lanes, norm[1])
            scale = normalise.scale(plain)
            weight = weights[which]
            return lambda j, k: plain(j, k) * spread(scale, k) * normalise.weight(weight, j, k)

        def keep(i: Expr, h: Expr, which: int, slot: Expr, fill: Callable[[Write], None]) -> None:
            """Put keys (0) or values (1) of a head where attention reads them."""
            page, offset = bind(T.floordiv(slot, page_size)), bind(T.floormod(slot, page_size))
            put = kv_place(layout, which, pages, page, h, offset)
            if not scales:
                fill(lambda j, x, k: put(j, x))
                return
            head = T.alloc_buffer((head_dim,), "float32")
            fill(lambda j, x, k: store(head, cast("float32", x), span(j, k)))
            scale = (scales[0], page, which, h, offset)
            keep_head(isa, head_dim, (head,), put, scale)

        def token(i: Expr) -> None:
            with T.serial(heads) as h:
                load = ready(i, bind(h * head_dim), 0)
                turn(i, load, lambda j, x, k: store(q, x, i, h, span(j, k)))
            slot = bind(T.Cast("int64", slots[i]))
            with T.If(slot >= 0), T.Then(), T.serial(kv_heads) as h:
                key = bind((heads + h) * head_dim)
                load = ready(i, key, 1)
                keep(i, h, 0, slot, lambda write: turn(i, load, write))
                value = bind((heads + kv_heads + h) * head_dim)
                keep(i, h, 1, slot, partial(_copy, qkv, i, value, head_dim, isa.lanes))

        each_row(slots.shape[0], width, token)

    return kernel(body, **rotated_arguments(isa, layout, heads, rotary_dim, norm is not None))


def _turn(
    table: Expr, head_dim: int, rotary_dim: int, lanes: int, i: Expr, load: Load, write: Write
) -> None:
    """Rotate halves as `rope.rope`; elements from rotary_dim on are unchanged."""
    half = rotary_dim // 2
    narrow = fit_lanes(half, lanes)
    with T.serial(half // narrow) as j:
        low, high = j * narrow, half + j * narrow
        a, b = bind(load(low, narrow)), bind(load(high, narrow))
        cos, sin = bind(table[i, span(low, narrow)]), bind(table[i, span(high, narrow)])
        write(low, a * cos - b * sin, narrow)
        write(high, b * cos + a * sin, narrow)
    if rotary_dim < head_dim:
        each(head_dim - rotary_dim, lanes, lambda j, k: write(j, load(j, k), k), rotary_dim)


def _copy(qkv: Expr, i: Expr, first: Expr, size: int, lanes: int, write: Write) -> None:
    """A head of values."""
    each(size, lanes, lambda j, k: write(j, qkv[i, span(first + j, k)], k))
