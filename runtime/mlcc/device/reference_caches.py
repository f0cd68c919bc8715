"""The operators that remember, in numpy: what each keeps in a layer's cache, and its value.

They are called with the step, the layer's cache, the tensors, and the numbers of the record that
the call carries (`mlcc_compiler.caches.LayerRecord`). The arithmetic is `reference_ops`' and
`reference_states`'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc.device import reference_latent as latents
from mlcc.device import reference_ops as ops
from mlcc.device import reference_states as states
from mlcc.device.step_view import StepView

Array = Any


@dataclass(frozen=True)
class LayerCache:
    """What a layer keeps: its cache group, and its tensors by name."""

    group: int
    tensors: dict[str, Array]


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
    ops.append_kv(k, v, step.tokens(f"slot.{cache.group}"), pages)
    return ops.paged_attention(q, pages, step.lists(cache.group), scale, window, softcap)


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
    """Append latents to the pages, then attend over them; made of the twins of its kernels."""
    pages = cache.tensors["latent"]
    kept = latents.latent_key(latent, norm, table, eps)
    latents.append_latent(kept, step.tokens(f"slot.{cache.group}"), pages)
    asked, lists = latents.latent_query(q, weight, table), step.lists(cache.group)
    out = latents.latent_attention(asked, pages, lists, rank, scale)
    return latents.latent_value(out, weight, value)


def causal_conv(step: StepView, cache: LayerCache, x: Array, weight: Array, **sizes: int) -> Array:
    """Its state is the inputs before."""
    return states.causal_conv(x, weight, step, cache.group, cache.tensors["conv"])


def delta_rule(
    step: StepView, cache: LayerCache, *inputs: Array, k_heads: int, eps: float, **sizes: int
) -> Array:
    """Its state is a matrix a head."""
    qkv, ba, a_log, dt_bias = inputs
    matrices = cache.tensors["delta"], k_heads, eps
    return states.delta_rule(qkv, ba, a_log, dt_bias, step, cache.group, *matrices)


REMEMBERING: dict[str, Callable[..., Any]] = {
    "mlcc.attention": attention,
    "mlcc.latent_attention": latent_attention,
    "mlcc.causal_conv": causal_conv,
    "mlcc.delta_rule": delta_rule,
}
"""By their names in the graph."""
