"""Launches of a decode step by its graph: eight a layer. `test_graphs.py` counts those that run."""

from __future__ import annotations

import pytest

from benchmarks.gpu.count_launches import launches
from mlcc_targets import Choices, get_target

A_LAYER = [
    "rotate_and_append",
    "attend",
    "linear",  # o
    "rounded_add_rms_norm",
    "gated_linear",
    "linear",  # down
    "rounded_add_rms_norm",
    "linear",  # q, k and v of the next layer
]


@pytest.mark.long
@pytest.mark.parametrize("quant", ["q4", "bf16"])
def test_a_layer(quant: str) -> None:
    """Of one sequence and of 64, whose activations nothing rounds by itself."""
    target = get_target("cuda", Choices(archs=("sm_90",)))
    names = [name.rstrip("0123456789") for name in launches("tiny", quant, target, 64)]
    names = [name for name in names if name != "clear_counters"]  # two, before the first layer
    first = names.index("rotate_and_append")
    assert names[first : first + len(A_LAYER)] == A_LAYER
    assert names.count("rotate_and_append") == 2 and "round_rows" not in names
