"""Kernels that move rows: into KV pages, between pages, and out of the batch. No arithmetic.

Pages follow PagedAttention (Kwon et al., 2023): [num_pages, 2 (keys, values), kv_heads, page_size,
head_dim]. `append_kv` and `copy_pages` write their last argument in place, for R.call_tir_inplace.
"""

from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.rows import each_row
from mlcc_compiler.kernels.cpu.vector_math import bind, cast, fit_lanes, span
from mlcc_compiler.kernels.frame import (
    Expr,
    PrimFunc,
    Sizes,
    f32,
    i32,
    kernel,
    page_argument,
    store,
)
from mlcc_compiler.kernels.step import COPIES, LAST_SAMPLED, TOKENS
from mlcc_compiler.layout import KvLayout


def append_kv(isa: Isa, layout: KvLayout) -> PrimFunc:
    """(k f32[n, kv_heads, head_dim], v likewise, token_slots i32[n], pages) -> pages, in place.

    Token i goes to page slot // page_size at offset slot % page_size; slot -1 writes nowhere.
    """
    kv_heads, head_dim, page_size = layout.kv_heads, layout.head_dim, layout.page_size
    lanes = fit_lanes(head_dim, isa.lanes)

    def body(k: Expr, v: Expr, slots: Expr, pages: Expr) -> None:
        def token(i: Expr) -> None:
            slot = bind(T.Cast("int64", slots[i]))
            with T.If(slot >= 0), T.Then():
                page, offset = bind(T.floordiv(slot, page_size)), bind(T.floormod(slot, page_size))
                with T.grid(kv_heads, head_dim // lanes) as (h, j):
                    at = span(j * lanes, lanes)
                    store(pages, cast(layout.dtype, k[i, h, at]), page, 0, h, offset, at)
                    store(pages, cast(layout.dtype, v[i, h, at]), page, 1, h, offset, at)

        each_row(slots.shape[0], 2 * kv_heads * head_dim, token)

    rows = f32("n", kv_heads, head_dim)
    return kernel(body, k=rows, v=rows, **TOKENS, pages=page_argument(layout))


def copy_pages(isa: Isa, layout: KvLayout) -> PrimFunc:
    """(src i32[c], dst i32[c], pages) -> pages with pages[dst[i]] = pages[src[i]], in place.

    No page may be in both lists, or twice in dst.
    """
    kv_heads, head_dim, page_size = layout.kv_heads, layout.head_dim, layout.page_size
    lanes = fit_lanes(head_dim, isa.lanes)

    def body(src: Expr, dst: Expr, pages: Expr) -> None:
        with T.parallel(src.shape[0] * (2 * kv_heads)) as task:
            i, part = T.floordiv(task, 2 * kv_heads), T.floormod(task, 2 * kv_heads)
            old, new = bind(T.Cast("int64", src[i])), bind(T.Cast("int64", dst[i]))
            c, h = bind(T.floordiv(part, kv_heads)), bind(T.floormod(part, kv_heads))
            with T.grid(page_size, head_dim // lanes) as (t, j):
                at = span(j * lanes, lanes)
                store(pages, pages[old, c, h, t, at], new, c, h, t, at)

    return kernel(body, **COPIES, pages=page_argument(layout))


def take_rows(isa: Isa, row: Sizes, index: Sizes) -> PrimFunc:
    """(x f32[n, hidden], rows i32[r]) -> f32[r, hidden] with out[i] = x[rows[i]]."""
    (hidden,) = row
    lanes = fit_lanes(hidden, isa.lanes)

    def body(x: Expr, rows: Expr, out: Expr) -> None:
        with T.serial(rows.shape[0]) as i:
            source = bind(T.Cast("int64", rows[i]))
            with T.serial(hidden // lanes) as j:
                at = span(j * lanes, lanes)
                store(out, x[source, at], i, at)

    return kernel(body, x=f32("n", hidden), rows=i32("r"), out=f32("r", hidden))


def resolve_tokens(isa: Isa) -> PrimFunc:
    """(token_ids i32[n], last_sampled i32[m]) -> i32[n]: id -1 - i becomes last_sampled[i]."""

    def body(ids: Expr, last: Expr, out: Expr) -> None:
        with T.serial(ids.shape[0]) as i:
            token = bind(ids[i])
            with T.If(token < 0):
                with T.Then():
                    store(out, last[T.Cast("int64", -1 - token)], i)
                with T.Else():
                    store(out, token, i)

    return kernel(body, token_ids=i32("n"), **LAST_SAMPLED, out=i32("n"))
