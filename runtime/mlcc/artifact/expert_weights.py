"""Which weights of an artifact are the matrices of a mixture's experts, by their names alone.

The compiler stores the equal matrices of a layer's experts as one tensor, one after the other, and
calls it after all of them: `model.layers.0.mlp.experts.0-127.gate_proj+up_proj.weight`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from mlcc.artifact.schema import WeightSpec

_NAME = re.compile(r"(.*)\.experts\.(\d+)(?:-(\d+)|((?:\+\d+)*))\.([\w+]+)\.")


def expert_matrices(name: str) -> int:
    """How many matrices of experts a tensor of this name holds; 0 = it is none of experts."""
    found = _NAME.match(name)
    if found is None:
        return 0
    _, first, last, others, kinds = found.groups()
    count = int(last) - int(first) + 1 if last else 1 + (others or "").count("+")
    return count * (1 + kinds.count("+"))


def expert_bytes(tensors: Iterable[WeightSpec]) -> tuple[int, int]:
    """Of all experts, and of those of the layer that has most; (0, 0) = it is no mixture."""
    layers: Counter[str] = Counter()
    for tensor in tensors:
        if found := _NAME.match(tensor.name):
            layers[found[1]] += tensor.nbytes
    return layers.total(), max(layers.values(), default=0)
