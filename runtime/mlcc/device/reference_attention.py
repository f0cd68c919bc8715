"""The naive numpy twins of attention over pages of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.device import reference_ops as ops
from mlcc.device.reference_caches import LayerCache, Remembers
from mlcc.device.step_view import PageLists, StepView

Array = Any
"""A numpy array; numpy's own type is lost in every arithmetic expression."""


def attention(
    step: StepView,
    cache: LayerCache,
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    **sizes: int,
) -> Array:
    """Append keys and values to the pages, then attend over them."""
    pages = cache.tensors["kv"]
    append_kv(k, v, step.tokens(f"slot.{cache.group}"), pages)
    return paged_attention(q, pages, step.lists(cache.group), scale, window, softcap)


def append_kv(k: Array, v: Array, token_slots: Array, pages: Array) -> Array:
    """Write k, v [n, kv_heads, head_dim] into pages [p, 2, kv_heads, page_size, head_dim]."""
    page_size = pages.shape[3]
    for i, slot in enumerate(token_slots):
        if slot >= 0:
            page, offset = divmod(int(slot), page_size)
            pages[page, 0, :, offset] = k[i]
            pages[page, 1, :, offset] = v[i]
    return pages


def paged_attention(
    q: Array,
    pages: Array,
    lists: PageLists,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> Array:
    """Causal attention of q [n, heads, head_dim]; zeros for tokens of no sequence."""
    out = np.zeros_like(q)
    for s, length in enumerate(lists.length):
        own = lists.ids[lists.first_page[s] : lists.first_page[s + 1]]
        begin, end = int(lists.first_token[s]), int(lists.first_token[s + 1])
        slid = int(lists.page_number[s]) * pages.shape[3]
        for t in range(begin, end):
            position = int(length) - end + t
            first = 0 if window is None else max(0, position + 1 - window)
            seen = first - slid, position + 1 - slid
            keys, values = (gather_kv(pages, own, c, *seen) for c in (0, 1))
            out[t] = attend(q[t], keys.astype(q.dtype), values.astype(q.dtype), scale, softcap)
    return out


def gather_kv(pages: Array, own: Array, which: int, first: int, last: int) -> Array:
    """Keys (0) or values (1) at first .. last - 1 of the pages in `own`, counted from the first of
    them: [kv_heads, last - first, head_dim]."""
    page_size = pages.shape[3]
    where = [divmod(j, page_size) for j in range(first, last)]
    return np.stack([pages[own[page], which, :, offset] for page, offset in where], axis=1)


def attend(q: Array, keys: Array, values: Array, scale: float, softcap_at: float | None) -> Array:
    """One query [heads, head_dim] against keys and values [kv_heads, length, head_dim]."""
    group = q.shape[0] // keys.shape[0]
    out = np.empty_like(q)
    for h in range(q.shape[0]):
        score = keys[h // group] @ q[h] * q.dtype.type(scale)
        if softcap_at is not None:
            score = ops.softcap(score, softcap_at)
        weight = np.exp(score - score.max())
        out[h] = weight @ values[h // group] / weight.sum()
    return out


OPERATORS = {"mlcc.attention": Remembers(attention)}
