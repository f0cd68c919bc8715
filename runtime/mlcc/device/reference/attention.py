"""Naive numpy twins of paged attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.device.reference import ops
from mlcc.device.reference.caches import CachedOperator, LayerCache
from mlcc.device.reference.step_view import PageLists, StepView

Array = Any
"""A numpy array; numpy's own type is lost in every arithmetic expression."""


def attention(
    step: StepView,
    cache: LayerCache,
    q: Array,
    *rest: Array,
    scale: float,
    window: int | None,
    softcap: float | None,
    causal: bool = True,
    visible_until: bool = False,
    visible_from: bool = False,
    shared: bool = False,
    **sizes: int,
) -> Array:
    """Append keys and values to the pages (8-bit ones if they have scales), then attend, after
    attention sinks if there are any. `shared` keys and values are in the pages already."""
    pages, scales = cache.tensors["kv"], cache.tensors.get("kv_scale")
    if scales is None and "kv_scale_fp8" in cache.tensors:
        pages, scales = pages.view(np.uint8), cache.tensors["kv_scale_fp8"]
    sinks = list(rest)
    if not shared:
        *sinks, k, v = rest
        append_kv(k, v, step.tokens(f"slot.{cache.group}"), pages, scales)
    lists = step.lists(cache.group)
    numbers = (scale, window, softcap, scales, sinks[0] if sinks else None)
    until = step.tokens("visible_until") if visible_until else None
    since = step.tokens("visible_from") if visible_from else None
    return paged_attention(q, pages, lists, *numbers, causal, until, since)


def append_kv(
    k: Array, v: Array, token_slots: Array, pages: Array, scales: Array | None = None
) -> Array:
    """Write k, v [n, kv_heads, head_dim] into pages [p, 2, kv_heads, page_size, head_dim], rounded
    where there are scales [p, 2, kv_heads, page_size]: by `round_heads`, of bytes by
    `round_heads_fp8`."""
    page_size = pages.shape[3]
    for i, slot in enumerate(token_slots):
        if slot >= 0:
            page, offset = divmod(int(slot), page_size)
            for which, x in enumerate((k, v)):
                if scales is None:
                    pages[page, which, :, offset] = x[i]
                else:
                    rounded = round_heads_fp8 if pages.dtype == np.uint8 else round_heads
                    found = rounded(x[i])
                    pages[page, which, :, offset], scales[page, which, :, offset] = found
    return pages


def round_heads(x: Array) -> tuple[Array, Array]:
    """(whole numbers of -127 .. 127, scales f32[...]) of x[..., head_dim], each head by itself: its
    largest magnitude divided by 127 (absmax; LLM.int8(), Dettmers et al., 2022).

    In float32, to the nearest even. What is below 2 ** -119 becomes 0. A head with anything that is
    not finite gets zeros and a scale that is not finite, so that it reads as NaN.
    """
    small, scales = _scaled_heads(x, 127)
    return np.rint(small), scales


def round_heads_fp8(x: Array) -> tuple[Array, Array]:
    """Likewise the codes of 8-bit floats (E4M3; Micikevicius et al., 2022) as bytes: the scale is
    the largest magnitude divided by 448. To the nearest, ties to even."""
    small, scales = _scaled_heads(x, 448)
    magnitude = np.minimum(np.abs(small), np.float32(448))
    _, exponents = np.frexp(magnitude)
    unit = np.ldexp(np.float32(1), np.maximum(exponents - 1, -6) - 3)  # of three bits of fraction
    codes = np.searchsorted(E4M3[:127], np.rint(magnitude / unit) * unit)
    return (codes + 128 * np.signbit(small)).astype(np.uint8), scales


def _scaled_heads(x: Array, largest_code: float) -> tuple[Array, Array]:
    """Numbers in steps of their scale, and the scales."""
    largest = np.abs(x.astype(np.float32)).max(-1)
    rounds = np.isfinite(largest) & (largest >= np.float32(2.0**-119))
    factor = np.float32(largest_code) / np.where(rounds, largest, 1).astype(np.float32)
    small = np.where(rounds[..., None], x, 0).astype(np.float32) * factor[..., None]
    return small, largest / np.float32(largest_code)


def _e4m3() -> Array:
    """The numbers of all codes: a sign, four bits of exponent, three of fraction."""
    exponent, fraction = np.divmod(np.arange(128), 8)
    normal = np.ldexp(1 + fraction / 8, exponent - 7)
    positive = np.where(exponent == 0, fraction / 512, normal)
    positive[127] = np.nan
    return np.concatenate([positive, -positive]).astype(np.float32)


E4M3 = _e4m3()


def paged_attention(
    q: Array,
    pages: Array,
    lists: PageLists,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    scales: Array | None = None,
    sinks: Array | None = None,
    causal: bool = True,
    visible_until: Array | None = None,
    visible_from: Array | None = None,
) -> Array:
    """Attention of q [n, heads, head_dim]; zeros for tokens of no sequence. Numbers of 8-bit pages
    are multiplied with their scales. If not causal, a query sees its whole sequence; with a window,
    the tokens less than that away. visible_until [n]: the last position that a causal one sees;
    visible_from [n]: the first."""
    out = np.zeros_like(q)
    for s, length in enumerate(lists.length):
        own = lists.ids[lists.first_page[s] : lists.first_page[s + 1]]
        begin, end = int(lists.first_token[s]), int(lists.first_token[s + 1])
        slid = int(lists.page_number[s]) * pages.shape[3]
        held = int(length) - slid
        keys, values = (gather_kv(pages, own, c, held, scales).astype(q.dtype) for c in (0, 1))
        for t in range(begin, end):
            position = int(length) - end + t
            first = 0 if window is None else max(0, position + 1 - window)
            first = first if visible_from is None else int(visible_from[t])
            last = position + 1 if visible_until is None else int(visible_until[t]) + 1
            if not causal:
                last = int(length) if window is None else min(int(length), position + window)
            seen = slice(first - slid, last - slid)
            out[t] = attend(q[t], keys[:, seen], values[:, seen], scale, softcap, sinks)
    return out


def gather_kv(
    pages: Array, own: Array, which: int, count: int, scales: Array | None = None
) -> Array:
    """The first keys (0) or values (1) in the pages `own`: [kv_heads, count, head_dim]."""
    at, page_size = np.arange(count), pages.shape[3]
    page, offset = own[at // page_size], at % page_size
    found = pages[page, which, :, offset]
    if found.dtype == np.uint8:
        found = E4M3[found]
    if scales is not None:
        found = found * scales[page, which, :, offset][..., None]
    return np.ascontiguousarray(found.swapaxes(0, 1))


def attend(
    q: Array,
    keys: Array,
    values: Array,
    scale: float,
    softcap_at: float | None,
    sinks: Array | None = None,
) -> Array:
    """One query [heads, head_dim] against keys and values [kv_heads, length, head_dim]. A sink
    [heads] is one more score, whose value is 0."""
    group = q.shape[0] // keys.shape[0]
    out = np.empty_like(q)
    for h in range(q.shape[0]):
        score = keys[h // group] @ q[h] * q.dtype.type(scale)
        if softcap_at is not None:
            score = ops.softcap(score, softcap_at)
        top = score.max() if sinks is None else np.maximum(score.max(), sinks[h])
        weight = np.exp(score - top)
        total = weight.sum() if sinks is None else weight.sum() + np.exp(sinks[h] - top)
        out[h] = weight @ values[h // group] / total
    return out


OPERATORS = {"mlcc.attention": CachedOperator(attention)}
