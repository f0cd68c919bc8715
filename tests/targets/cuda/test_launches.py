"""Launches of a decode step by its graph: eight a layer. `test_graphs.py` counts those that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from benchmarks.gpu.count_launches import launches, launches_for
from benchmarks.models import random_checkpoint
from mlcc_targets import Choices, get_target
from tests.targets.cuda.test_model import to_fp8

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


def kinds(names: list[str]) -> list[str]:
    """Without their numbers, and the clearing of counters before the first layer."""
    found = [name.rstrip("0123456789") for name in names]
    return [name for name in found if name != "clear_counters"]


@pytest.mark.long
@pytest.mark.parametrize("quant", ["q4", "bf16"])
def test_a_layer(quant: str) -> None:
    """Of one sequence and of 64, whose activations nothing rounds by itself."""
    target = get_target("cuda", Choices(archs=("sm_90",)))
    names = kinds(launches("tiny", quant, target, 64))
    first = names.index("rotate_and_append")
    assert names[first : first + len(A_LAYER)] == A_LAYER
    assert names.count("rotate_and_append") == 2 and "round_rows" not in names


def test_a_layer_with_activations_of_8_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads and tiles of gate are whole groups of columns: attention and gate and up round their
    results themselves."""
    sizes = {"hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 2}
    shape = {**random_checkpoint.SHAPES["tiny"], **sizes, "num_key_value_heads": 1}
    monkeypatch.setitem(random_checkpoint.SHAPES, "fp8", shape)
    random_checkpoint.make(tmp_path, "fp8", 1024)
    tensors: dict[str, Any] = load_file(tmp_path / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        parts, _ = to_fp8(np.asarray(tensors[name], np.float32))
        tensors |= {name.replace("weight", part): array for part, array in parts.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    target = get_target("cuda", Choices(archs=("sm_90",)))
    names = kinds(launches_for(tmp_path, "keep", target, 64, activations=8))
    first = names.index("rotate_and_append")
    assert names[first : first + len(A_LAYER)] == A_LAYER
    assert names.count("rotate_and_append") == 2 and "round_to_fp8" not in names
