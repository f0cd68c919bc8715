"""Kernels that move rows: into KV pages, between pages, and out of the batch. No arithmetic.

Pages follow PagedAttention (Kwon et al., 2023): [num_pages, 2 (keys, values), kv_heads, page_size,
head_dim]. `append_kv` and `copy_pages` write their last argument in place, for R.call_tir_inplace.
"""

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.cpu.vector_math import cast, fit_lanes, span

_ATTRS = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}
_SERIAL = 16384


def append_kv(
    kv_heads: int, head_dim: int, page_size: int, kv_dtype: str, lanes: int
) -> tirx.PrimFunc:
    """(k f32[n, kv_heads, head_dim], v likewise, token_slots i32[n], pages) -> pages, in place.

    Token i goes to page slot // page_size at offset slot % page_size; slot -1 writes nowhere.
    """
    lanes = fit_lanes(head_dim, lanes)

    @T.prim_func(s_tir=True, private=True)
    def append_kv(
        k_handle: T.handle, v_handle: T.handle, slots_handle: T.handle, pages_handle: T.handle
    ):
        T.func_attr(_ATTRS)
        n = T.int64()
        num_pages = T.int64()
        k = T.match_buffer(k_handle, (n, kv_heads, head_dim), "float32")
        v = T.match_buffer(v_handle, (n, kv_heads, head_dim), "float32")
        slots = T.match_buffer(slots_handle, (n,), "int32")
        pages = T.match_buffer(
            pages_handle, (num_pages, 2, kv_heads, page_size, head_dim), kv_dtype
        )

        @T.inline
        def token(i):
            slot: T.let = T.Cast("int64", slots[i])
            if slot >= T.int64(0):
                page: T.let = T.floordiv(slot, T.int64(page_size))
                offset: T.let = T.floormod(slot, T.int64(page_size))
                for h, j in T.grid(kv_heads, head_dim // lanes):
                    at: T.let = j * lanes
                    pages[page, 0, h, offset, span(at, lanes)] = cast(
                        kv_dtype, k[i, h, span(at, lanes)]
                    )
                    pages[page, 1, h, offset, span(at, lanes)] = cast(
                        kv_dtype, v[i, h, span(at, lanes)]
                    )

        if n * (kv_heads * head_dim) <= _SERIAL:
            for i in T.serial(n):
                token(i)
        else:
            for i in T.parallel(n):
                token(i)

    return append_kv


def copy_pages(
    kv_heads: int, head_dim: int, page_size: int, kv_dtype: str, lanes: int
) -> tirx.PrimFunc:
    """(src i32[c], dst i32[c], pages) -> pages with pages[dst[i]] = pages[src[i]], in place.

    No page may be in both lists, or twice in dst.
    """
    lanes = fit_lanes(head_dim, lanes)

    @T.prim_func(s_tir=True, private=True)
    def copy_pages(src_handle: T.handle, dst_handle: T.handle, pages_handle: T.handle):
        T.func_attr(_ATTRS)
        count = T.int64()
        num_pages = T.int64()
        src = T.match_buffer(src_handle, (count,), "int32")
        dst = T.match_buffer(dst_handle, (count,), "int32")
        pages = T.match_buffer(
            pages_handle, (num_pages, 2, kv_heads, page_size, head_dim), kv_dtype
        )
        for task in T.parallel(count * (2 * kv_heads)):
            i: T.let = T.floordiv(task, 2 * kv_heads)
            c: T.let = T.floordiv(T.floormod(task, 2 * kv_heads), kv_heads)
            h: T.let = T.floormod(task, kv_heads)
            a: T.let = T.Cast("int64", src[i])
            b: T.let = T.Cast("int64", dst[i])
            for t, j in T.grid(page_size, head_dim // lanes):
                pages[b, c, h, t, span(j * lanes, lanes)] = pages[
                    a, c, h, t, span(j * lanes, lanes)
                ]

    return copy_pages


def take_rows(hidden: int, lanes: int) -> tirx.PrimFunc:
    """(x f32[n, hidden], rows i32[r]) -> f32[r, hidden] with out[i] = x[rows[i]]."""
    lanes = fit_lanes(hidden, lanes)

    @T.prim_func(s_tir=True, private=True)
    def take_rows(x_handle: T.handle, rows_handle: T.handle, out_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        r = T.int64()
        x = T.match_buffer(x_handle, (n, hidden), "float32")
        rows = T.match_buffer(rows_handle, (r,), "int32")
        out = T.match_buffer(out_handle, (r, hidden), "float32")
        for i, j in T.grid(r, hidden // lanes):
            out[i, span(j * lanes, lanes)] = x[T.Cast("int64", rows[i]), span(j * lanes, lanes)]

    return take_rows


def resolve_tokens() -> tirx.PrimFunc:
    """(token_ids i32[n], last_sampled i32[m]) -> i32[n]: id -1 - i becomes last_sampled[i]."""

    @T.prim_func(s_tir=True, private=True)
    def resolve_tokens(ids_handle: T.handle, last_handle: T.handle, out_handle: T.handle):
        T.func_attr(_ATTRS)
        n = T.int64()
        m = T.int64()
        ids = T.match_buffer(ids_handle, (n,), "int32")
        last = T.match_buffer(last_handle, (m,), "int32")
        out = T.match_buffer(out_handle, (n,), "int32")
        for i in T.serial(n):
            if ids[i] < 0:
                out[i] = last[T.Cast("int64", T.int32(-1) - ids[i])]
            else:
                out[i] = ids[i]

    return resolve_tokens
