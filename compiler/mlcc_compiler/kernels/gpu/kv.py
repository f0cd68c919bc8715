"""Kernels that move keys and values: into pages, and between pages.

Pages follow PagedAttention (Kwon et al., 2023): [num_pages, 2 (keys, values), kv_heads, page_size,
head_dim]. Both write their last argument in place, for R.call_tir_inplace.
"""

from __future__ import annotations

from mlcc_compiler.kernels.frame import Argument, Expr, PrimFunc, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import each_element
from mlcc_compiler.kernels.gpu.workgroup import bind, when


def page_argument(kv_heads: int, head_dim: int, page_size: int, kv_dtype: str) -> Argument:
    """The pages of one layer."""
    return Argument(("num_pages", 2, kv_heads, page_size, head_dim), kv_dtype)


def append_kv(gpu: Gpu, kv_heads: int, head_dim: int, page_size: int, kv_dtype: str) -> PrimFunc:
    """(k f32[n, kv_heads, head_dim], v likewise, token_slots i32[n], pages) -> pages, in place.

    Token i goes to page slot // page_size at offset slot % page_size; slot -1 writes nowhere.
    """

    def body(k: Expr, v: Expr, slots: Expr, pages: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            h, d = bind(j // head_dim), bind(j % head_dim)
            slot = bind(slots[i])
            with when(slot >= 0):
                page, offset = bind(slot // page_size), bind(slot % page_size)
                store(pages, k[i, h, d].astype(kv_dtype), page, 0, h, offset, d)
                store(pages, v[i, h, d].astype(kv_dtype), page, 1, h, offset, d)

        each_element(gpu, slots.shape[0], kv_heads * head_dim, element)

    rows = f32("n", kv_heads, head_dim)
    pages = page_argument(kv_heads, head_dim, page_size, kv_dtype)
    return kernel(body, k=rows, v=rows, token_slots=i32("n"), pages=pages)


def copy_pages(gpu: Gpu, kv_heads: int, head_dim: int, page_size: int, kv_dtype: str) -> PrimFunc:
    """(src i32[c], dst i32[c], pages) -> pages with pages[dst[i]] = pages[src[i]], in place.

    No page may be in both lists, or twice in dst.
    """
    width = 2 * kv_heads * page_size * head_dim

    def body(src: Expr, dst: Expr, pages: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            d, t = bind(j % head_dim), bind(j // head_dim % page_size)
            h = bind(j // (head_dim * page_size) % kv_heads)
            c = bind(j // (head_dim * page_size * kv_heads))
            store(pages, pages[src[i], c, h, t, d], dst[i], c, h, t, d)

        each_element(gpu, src.shape[0], width, element)

    pages = page_argument(kv_heads, head_dim, page_size, kv_dtype)
    return kernel(body, src=i32("c"), dst=i32("c"), pages=pages)
