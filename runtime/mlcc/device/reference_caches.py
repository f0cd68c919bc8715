"""The operators that remember, in numpy: what each keeps in a layer's cache, and its value.

They are called with the step, the layer's cache, the tensors, and the numbers of the record that
the call carries (`mlcc_compiler.caches.LayerRecord`). The arithmetic is `reference_ops`'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc.device import reference_ops as ops
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


REMEMBERING: dict[str, Callable[..., Any]] = {"mlcc.attention": attention}
"""By their names in the graph."""
