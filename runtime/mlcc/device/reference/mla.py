"""Naive numpy twins of the kernels of latent attention (MLA; DeepSeek-AI, 2024), absorbed form.

`weight` is kv_b_proj's [heads * (nope + value), rank]: of each head first the rows that make a key
of a latent, then those that make a value. Rotation is of neighbouring pairs, as in DeepSeek.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.device.reference.caches import CachedOperator, LayerCache
from mlcc.device.reference.step_view import PageLists, StepView

Array = Any


def latent_attention(
    step: StepView,
    cache: LayerCache,
    q: Array,
    weight: Array,
    table: Array,
    latent: Array,
    norm: Array,
    _: Array,
    *,
    rank: int,
    value: int,
    scale: float,
    eps: float,
    **sizes: int,
) -> Array:
    """Append latents to the pages, then attend over them, with the twins of the single kernels."""
    pages = cache.tensors["latent"]
    append_latent(latent_key(latent, norm, table, eps), step.tokens(f"slot.{cache.group}"), pages)
    asked, lists = latent_query(q, weight, table), step.lists(cache.group)
    return latent_value(attend_latents(asked, pages, lists, rank, scale), weight, value)


def latent_query(q: Array, weight: Array, table: Array) -> Array:
    """q [n, heads, nope + rope] -> [n, heads, rank + rope]: the query in latent space, then its
    rotated part."""
    nope = q.shape[2] - table.shape[1]
    keys = weight.reshape(q.shape[1], -1, weight.shape[1])[:, :nope]
    asked = np.einsum("nhd,hdr->nhr", q[..., :nope], keys)
    return np.concatenate([asked, rope_pairs(q[..., nope:], table[:, None])], axis=-1)


def latent_key(x: Array, weight: Array, table: Array, eps: float) -> Array:
    """x [n, rank + rope] -> the same shape: the latent normalised by `weight` [rank], the key
    rotated."""
    rank = len(weight)
    latent, key = x[:, :rank], x[:, rank:]
    mean = np.mean(latent * latent, axis=-1, keepdims=True)
    normed = (latent / np.sqrt(mean + eps) * weight).astype(x.dtype)
    return np.concatenate([normed, rope_pairs(key, table)], axis=-1)


def latent_value(x: Array, weight: Array, width: int) -> Array:
    """x [n, heads, rank], sums of latents -> [n, heads, width], sums of each head's values."""
    values = weight.reshape(x.shape[1], -1, weight.shape[1])[:, -width:]
    return np.einsum("nhr,hvr->nhv", x, values)


def rope_pairs(x: Array, table: Array) -> Array:
    """Rotate elements 2 j and 2 j + 1 of x [..., rope] by angle j of table [..., rope]."""
    cos, sin = np.split(table, 2, axis=-1)
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


def append_latent(latent: Array, token_slots: Array, pages: Array) -> Array:
    """Write latent [n, width] into pages [p, page_size, width]; slot -1 is skipped."""
    for i, slot in enumerate(token_slots):
        if slot >= 0:
            pages[divmod(int(slot), pages.shape[1])] = latent[i]
    return pages


def attend_latents(q: Array, pages: Array, lists: PageLists, rank: int, scale: float) -> Array:
    """Causal attention of q [n, heads, width] over pages [p, page_size, width], whose first `rank`
    numbers are the values -> [n, heads, rank]; zeros for tokens of no sequence."""
    out = np.zeros_like(q[..., :rank])
    for s, length in enumerate(lists.length):
        own = lists.ids[lists.first_page[s] : lists.first_page[s + 1]]
        keys = pages[own].reshape(-1, pages.shape[2])[:length].astype(q.dtype)
        begin, end = int(lists.first_token[s]), int(lists.first_token[s + 1])
        for t in range(begin, end):
            seen = keys[: int(length) - end + t + 1]
            score = q[t] @ seen.T * q.dtype.type(scale)
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            out[t] = weight @ seen[:, :rank] / weight.sum(axis=1, keepdims=True)
    return out


OPERATORS = {"mlcc.latent_attention": CachedOperator(latent_attention)}
