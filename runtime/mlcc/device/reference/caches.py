"""Layer caches of the reference executor, and the protocols of twins that read them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.schema import CacheInfo, page_shape

Array = Any


@dataclass(frozen=True)
class LayerCache:
    """A layer's cache group, and its tensors by name."""

    group: int
    tensors: dict[str, Array]


@dataclass(frozen=True)
class CachedOperator:
    """A twin of an operator with a cache."""

    twin: Callable[..., Any]
    """Called with the step, the layer's cache, the tensors, and by name the numbers of the record
    that the call carries (`mlcc_compiler.ir.caches.LayerRecord`)."""


@dataclass(frozen=True)
class StepOperator:
    """A twin without a cache that reads which tokens belong to one sequence."""

    twin: Callable[..., Any]
    """Called with the step, then as any other twin."""


@dataclass(frozen=True)
class EmbeddingsOperator:
    """A twin that reads rows which the host wrote."""

    twin: Callable[..., Any]
    """Called with the rows [slots, width], then as any other twin."""


@dataclass(frozen=True)
class SourceOperator:
    """A twin that reads rows which the host wrote, where the step says."""

    twin: Callable[..., Any]
    """Called with the step, the rows [slots, width], then as any other twin."""


def layer_caches(
    caches: Sequence[CacheInfo],
    pools: Sequence[int],
    dtype: npt.DTypeLike,
    layers: Container[int] | None = None,
) -> dict[int, LayerCache]:
    """The caches of all layers, or of `layers`, by number. Filled with poison, so that a read of
    unwritten contents shows."""
    found: dict[int, LayerCache] = {}
    for g, (cache, pool) in enumerate(zip(caches, pools, strict=True)):
        each = len(cache.tensors) // max(1, len(cache.layers))
        for i, layer in enumerate(cache.layers):
            if layers is not None and layer not in layers:
                continue
            specs = cache.tensors[i * each : (i + 1) * each]
            made = {
                spec.name.rpartition(".")[0]: np.full((pool, *page_shape(spec)), np.nan, dtype)
                for spec in specs
            }
            found[layer] = LayerCache(g, made)
    return found


def copy_pages(src: Array, dst: Array, pages: Array) -> Array:
    """pages[dst[i]] = pages[src[i]]."""
    for a, b in zip(src, dst, strict=True):
        pages[b] = pages[a]
    return pages
