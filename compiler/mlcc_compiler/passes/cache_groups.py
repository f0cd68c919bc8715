"""Which layers share a cache group, read from the graph: those that keep the same of the past.

Layers that see all tokens are a paged group, those of one window a group of that window.
"""

from __future__ import annotations

from typing import Any

from mlcc.engine.tables import CacheGroup
from mlcc_compiler._tvm import ir, relax
from mlcc_compiler.graph import call_parts, literal
from mlcc_compiler.layout import AttentionShape, CachePlan, Caches


def caches_of(module: ir.IRModule, page_size: int, dtype: str) -> Caches:
    """The cache groups of a traced model, groups of pages before groups of windows."""
    layers: dict[tuple[int, int, int], list[int]] = {}

    def visit(node: Any) -> None:
        if not isinstance(node, relax.Call):
            return
        name, arguments = call_parts(node)
        if name == "mlcc.attention":
            layer, shape = arguments[-2:]
            numbers = AttentionShape.of_text(str(literal(shape)))
            key = (numbers.window or 0, numbers.kv_heads, numbers.head_dim)
            layers.setdefault(key, []).append(int(literal(layer)))

    relax.analysis.post_order_visit(module["forward"], visit)
    plans = []
    for (window, kv_heads, head_dim), members in sorted(layers.items()):
        kind = "window" if window else "paged"
        group = CacheGroup(kind, page_size, window or None)
        plans.append(CachePlan(group, tuple(sorted(members)), dtype, kv_heads, head_dim))
    return Caches(tuple(plans))
