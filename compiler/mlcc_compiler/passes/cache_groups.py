"""Cache groups of a traced graph: layers with the same cache tensors share a group.

Full-attention layers form a paged group, those of one window a sliding group of that window, those
with a state a group of slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import prod

from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.caches import RECORDS, CachePlan, Caches, CacheSpec, LayerRecord, PagedRecord
from mlcc_compiler.ir.graph import (
    ALIGN_ENTRY,
    PREFIX,
    call_parts,
    calls,
    dims,
    literal,
    traced_entries,
)

_ORDER = ("paged", "window", "state")


def caches_of(module: ir.IRModule, page_size: int, dtype: str) -> Caches:
    """The cache groups of a traced model: pages, then windows, narrow ones first, then states.
    `forward_align` has none but those of `forward`.

    Page tensors are of `dtype`, in pages of `page_size` tokens.
    """
    layers: dict[int, CacheSpec] = {}
    entries = [module[name] for name in traced_entries(module) if name != ALIGN_ENTRY]
    own, *of_mtp = ({layer for layer, _ in _records_of(entry)} for entry in entries)
    for layer, record in chain.from_iterable(map(_records_of, entries)):
        if isinstance(record, PagedRecord) and record.reads_shared_kv:
            continue
        cache_spec = record.cache_spec(page_size, dtype)
        layers[layer] = layers[layer].merge(cache_spec) if layer in layers else cache_spec
    groups: dict[CacheSpec, list[int]] = {}
    for layer, cache_spec in sorted(layers.items()):
        groups.setdefault(cache_spec, []).append(layer)
    return Caches(
        tuple(
            CachePlan(cache_spec, tuple(groups[cache_spec]))
            for cache_spec in sorted(groups, key=_key)
        ),
        max(map(_embeddings_width, entries)),
        tuple(sorted(set().union(*of_mtp) - own)),
    )


def _embeddings_width(function: relax.Function) -> int:
    """Width of the rows that the host writes; 0 = the model reads none."""
    for name, arguments in map(call_parts, calls(function)):
        if name == PREFIX + "cross_attention":
            q, _, layers, *_ = arguments
            return 2 * int(literal(layers)) * prod(map(int, q.ty.shape.values[1:]))
        if name == PREFIX + "inputs_embeds":
            width, _, _, parts, _ = (int(literal(number)) for number in arguments[-5:])
            return width * parts
        if name == PREFIX + "keep_hidden":
            return dims(arguments[0])[1]
    return 0


def _records_of(function: relax.Function) -> Iterator[tuple[int, LayerRecord]]:
    """(layer, record) of each stateful call, in order."""
    for call in calls(function):
        name, arguments = call_parts(call)
        if (record := RECORDS.get(name.removeprefix(PREFIX))) is not None:
            layer, text = map(literal, arguments[-2:])
            yield int(layer), record.from_json(str(text))


def _key(cache_spec: CacheSpec) -> tuple[int, int, list[tuple[int, ...]]]:
    group = cache_spec.group
    return (
        _ORDER.index(group.kind),
        group.window or 0,
        [tensor.shape for tensor in cache_spec.tensors],
    )
