"""Which layers share a cache group, read from the graph: those that keep the same of the past.

Layers that see all tokens are a paged group, those of one window a group of that window, those
with a state a group of slots.
"""

from __future__ import annotations

from mlcc_compiler._tvm import ir
from mlcc_compiler.caches import CachePlan, Caches, Kept
from mlcc_compiler.passes.remembering import records_of

_ORDER = ("paged", "window", "state")


def caches_of(module: ir.IRModule, page_size: int, dtype: str) -> Caches:
    """The cache groups of a traced model: pages, then windows, the narrow ones first, then states.

    Tensors of pages are of `dtype`, in pages of `page_size` tokens.
    """
    layers: dict[int, Kept] = {}
    for layer, record in records_of(module["forward"]):
        kept = record.kept(page_size, dtype)
        layers[layer] = layers[layer].beside(kept) if layer in layers else kept
    groups: dict[Kept, list[int]] = {}
    for layer, kept in sorted(layers.items()):
        groups.setdefault(kept, []).append(layer)
    return Caches(tuple(CachePlan(kept, tuple(groups[kept])) for kept in sorted(groups, key=_key)))


def _key(kept: Kept) -> tuple[int, int, list[tuple[int, ...]]]:
    group = kept.group
    return _ORDER.index(group.kind), group.window or 0, [tensor.shape for tensor in kept.tensors]
