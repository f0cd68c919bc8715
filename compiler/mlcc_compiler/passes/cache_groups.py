"""Which layers share a cache group, read from the graph: those that keep the same of the past.

Layers that see all tokens are a paged group, those of one window a group of that window, those
with a state a group of slots.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.caches import RECORDS, CachePlan, Caches, Kept, LayerRecord, PagedRecord
from mlcc_compiler.ir.graph import PREFIX, call_parts, literal

_ORDER = ("paged", "window", "state")


def caches_of(module: ir.IRModule, page_size: int, dtype: str) -> Caches:
    """The cache groups of a traced model: pages, then windows, the narrow ones first, then states.

    Tensors of pages are of `dtype`, in pages of `page_size` tokens.
    """
    layers: dict[int, Kept] = {}
    for layer, record in _records_of(module["forward"]):
        if isinstance(record, PagedRecord) and record.asks_only:
            continue
        kept = record.kept(page_size, dtype)
        layers[layer] = layers[layer].beside(kept) if layer in layers else kept
    groups: dict[Kept, list[int]] = {}
    for layer, kept in sorted(layers.items()):
        groups.setdefault(kept, []).append(layer)
    return Caches(tuple(CachePlan(kept, tuple(groups[kept])) for kept in sorted(groups, key=_key)))


def _records_of(function: relax.Function) -> Iterator[tuple[int, LayerRecord]]:
    """(layer, record) of each call that remembers, in order."""
    for block in function.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                name, arguments = call_parts(binding.value)
                record = RECORDS.get(name.removeprefix(PREFIX))
                if record is not None:
                    layer, text = map(literal, arguments[-2:])
                    yield int(layer), record.of_text(str(text))


def _key(kept: Kept) -> tuple[int, int, list[tuple[int, ...]]]:
    group = kept.group
    return _ORDER.index(group.kind), group.window or 0, [tensor.shape for tensor in kept.tensors]
