"""Finds the expert matrices of a mixture-of-experts model by their weight names.

The compiler concatenates the equal matrices of a layer's experts into one tensor, named after all
of them: `model.layers.0.mlp.experts.0-127.gate_proj+up_proj.weight`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from mlcc.artifact.schema import WeightSpec

_NAME = re.compile(r"(.*)\.experts\.(\d+)(?:-(\d+)|((?:\+\d+)*))\.([\w+]+)\.")


def expert_matrices(name: str) -> int:
    """The number of expert matrices in a tensor of this name; 0 = not an expert tensor."""
    found = _NAME.match(name)
    if found is None:
        return 0
    _, first, last, others, kinds = found.groups()
    count = int(last) - int(first) + 1 if last else 1 + (others or "").count("+")
    return count * (1 + kinds.count("+"))


def expert_bytes(tensors: Iterable[WeightSpec]) -> tuple[int, int]:
    """Bytes of all experts, and of the experts of the largest layer; (0, 0) = no mixture."""
    layers: Counter[str] = Counter()
    for tensor in tensors:
        if found := _NAME.match(tensor.name):
            layers[found[1]] += tensor.nbytes
    return layers.total(), max(layers.values(), default=0)
