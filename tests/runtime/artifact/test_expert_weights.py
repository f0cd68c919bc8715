"""The bytes of a mixture's experts: all, and those of its largest layer."""

from __future__ import annotations

from mlcc.artifact.expert_weights import expert_bytes
from mlcc.artifact.schema import WeightSpec


def spec(name: str, size: int) -> WeightSpec:
    return WeightSpec(name=name, dtype="uint8", shape=(size,), shard="weights.safetensors")


def test_layers_of_different_sizes() -> None:
    tensors = [
        spec("model.layers.0.mlp.experts.0-7.down_proj.weight", 30),
        spec("model.layers.1.mlp.experts.0-7.down_proj.weight", 50),
        spec("model.layers.1.mlp.experts.0-7.gate_proj+up_proj.weight", 100),
        spec("model.layers.2.mlp.experts.0-7.down_proj.weight", 40),
        spec("model.layers.2.mlp.gate.weight", 900),
    ]
    assert expert_bytes(tensors) == (220, 150)
    assert expert_bytes(tensors[-1:]) == expert_bytes([]) == (0, 0)
