"""Causal attention over paged keys and values, prefill and decode rows mixed, on the CPU.

Online softmax as in FlashAttention (Dao et al., 2022) over pages as in PagedAttention (Kwon et
al., 2023). It reads keys and values that are already appended (see `kv.py`) and rotated.
"""

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.cpu.vector_math import (
    cast,
    exp,
    fit_lanes,
    span,
    spread,
    sum_lanes,
    tanh,
    vector,
)

_ATTRS = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8}


def paged_attention(
    heads: int,
    kv_heads: int,
    head_dim: int,
    page_size: int,
    scale: float,
    window: int | None,
    softcap: float | None,
    kv_dtype: str,
    lanes: int,
) -> tirx.PrimFunc:
    """(q f32[n, heads, head_dim], pages, qo_indptr i32[b + 1], page_indptr i32[b + 1],
    page_indices i32[p], last_page_len i32[b]) -> f32[n, heads, head_dim].

    pages: kv_dtype[num_pages, 2, kv_heads, page_size, head_dim]. The last query of a sequence sits
    at its last key. A query at position i sees keys j <= i, with a window w only j > i - w; pages
    that no query sees are not read and may be -1. Tokens behind qo_indptr[b] get zeros.
    """
    group = heads // kv_heads
    lanes = fit_lanes(head_dim, lanes)
    vectors = head_dim // lanes
    f32v = vector("float32", lanes)

    def capped(s):
        return s if softcap is None else tanh(s * T.float32(1.0 / softcap)) * T.float32(softcap)

    @T.prim_func(s_tir=True, private=True)
    def paged_attention(
        q_handle: T.handle,
        pages_handle: T.handle,
        qo_indptr_handle: T.handle,
        page_indptr_handle: T.handle,
        page_indices_handle: T.handle,
        last_page_len_handle: T.handle,
        out_handle: T.handle,
    ):
        T.func_attr(_ATTRS)
        n, b, p, num_pages = T.int64(), T.int64(), T.int64(), T.int64()
        q = T.match_buffer(q_handle, (n, heads, head_dim), "float32")
        pages = T.match_buffer(
            pages_handle, (num_pages, 2, kv_heads, page_size, head_dim), kv_dtype
        )
        qo_indptr = T.match_buffer(qo_indptr_handle, (b + 1,), "int32")
        page_indptr = T.match_buffer(page_indptr_handle, (b + 1,), "int32")
        page_indices = T.match_buffer(page_indices_handle, (p,), "int32")
        last_page_len = T.match_buffer(last_page_len_handle, (b,), "int32")
        out = T.match_buffer(out_handle, (n, heads, head_dim), "float32")
        for task in T.parallel(n * heads):
            t: T.let = T.floordiv(task, heads)
            h: T.let = T.floormod(task, heads)
            s: T.int64 = T.int64(0)
            while T.And(s < b, T.Cast("int64", qo_indptr[T.min(s, b - 1) + 1]) <= t):
                s = s + 1
            acc = T.alloc_buffer((vectors,), f32v, scope="local")
            m: T.float32 = T.float32(-3e38)
            total: T.float32 = T.float32(0)
            for j in T.serial(vectors):
                acc[j] = spread(0.0, lanes)
            if s < b:
                first: T.let = T.Cast("int64", page_indptr[s])
                kv_len: T.let = (
                    T.Cast("int64", page_indptr[s + 1]) - first - 1
                ) * page_size + T.Cast("int64", last_page_len[s])
                pos: T.let = kv_len - T.Cast("int64", qo_indptr[s + 1]) + t
                start: T.let = T.max(pos + 1 - window, 0) if window is not None else T.int64(0)
                for step in T.serial(T.max(pos + 1 - start, 0)):
                    key: T.let = start + step
                    page: T.let = T.Cast(
                        "int64", page_indices[first + T.floordiv(key, T.int64(page_size))]
                    )
                    offset: T.let = T.floormod(key, T.int64(page_size))
                    dot = T.alloc_buffer((1,), f32v, scope="local")
                    dot[0] = spread(0.0, lanes)
                    for j in T.serial(vectors):
                        dot[0] = dot[0] + q[t, h, span(j * lanes, lanes)] * cast(
                            "float32",
                            pages[page, 0, T.floordiv(h, group), offset, span(j * lanes, lanes)],
                        )
                    score: T.let = capped(sum_lanes(dot[0]) * T.float32(scale))
                    top: T.let = T.max(m, score)
                    shrink: T.let = exp(m - top)
                    weight: T.let = exp(score - top)
                    m = top
                    total = total * shrink + weight
                    for j in T.serial(vectors):
                        acc[j] = acc[j] * spread(shrink, lanes) + spread(weight, lanes) * cast(
                            "float32",
                            pages[page, 1, T.floordiv(h, group), offset, span(j * lanes, lanes)],
                        )
            inverse: T.let = T.Select(total > T.float32(0), T.float32(1) / total, T.float32(0))
            for j in T.serial(vectors):
                out[t, h, span(j * lanes, lanes)] = acc[j] * spread(inverse, lanes)

    return paged_attention
