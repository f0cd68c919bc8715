"""What the reference executor keeps for each layer, and how the twins that remember are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class LayerCache:
    """What a layer keeps: its cache group, and its tensors by name."""

    group: int
    tensors: dict[str, Array]


@dataclass(frozen=True)
class Remembers:
    """An operator with a cache, in a table of twins."""

    twin: Callable[..., Any]
    """Called with the step, the layer's cache, the tensors, and by name the numbers of the record
    that the call carries (`mlcc_compiler.caches.LayerRecord`)."""


def copy_pages(src: Array, dst: Array, pages: Array) -> Array:
    """pages[dst[i]] = pages[src[i]]."""
    for a, b in zip(src, dst, strict=True):
        pages[b] = pages[a]
    return pages
