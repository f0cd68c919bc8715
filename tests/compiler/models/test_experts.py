"""Checkpoints with experts: the required tensors, and the names and layouts of expert matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir.layout import WeightLayout, WeightPlan
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import get_target
from tests.compiler.models.config.test_config_refusals import GOOD
from tests.compiler.models.helpers.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("moe")
    make_checkpoint("qwen3_moe", path)
    return path


def test_a_missing_expert_is_named(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.2.mlp.experts.4.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"1 missing: model\.layers\.2\.mlp\.experts\.4\.up"):
        make_plan(Checkpoint.open(tmp_path), get_target("cpu"), Options())


def test_experts_are_quantized_and_their_router_is_not(folder: Path) -> None:
    plan = make_plan(Checkpoint.open(folder), get_target("cpu"), Options(quant="q4"))
    assert plan.schemes["model.layers.0.mlp.gate.weight"] == "f32"
    assert plan.schemes["model.layers.0.mlp.experts.6.down_proj.weight"] == "t4_g32"
    assert "model.layers.1.mlp.gate.weight" not in plan.schemes
    assert plan.schemes["model.layers.1.mlp.down_proj.weight"] == "t5_g32"


@pytest.mark.parametrize(
    ("numbers", "kinds", "name"),
    [
        (range(128), ["gate", "up"], "mlp.experts.0-127.gate+up.weight"),
        (range(2), ["down"], "mlp.experts.0+1.down.weight"),
        ([0, 1, 3], ["down"], "mlp.experts.0+1+3.down.weight"),
    ],
)
def test_many_matrices_have_a_short_name(numbers: Any, kinds: list[str], name: str) -> None:
    sources = tuple(f"mlp.experts.{n}.{kind}.weight" for kind in kinds for n in numbers)
    plan = WeightPlan(sources, (1,), "experts", "f32", WeightLayout.vector((1,)))
    assert plan.name == name


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_either_name_of_the_number_of_experts(key: str) -> None:
    config: Any = build_model({"model_type": "qwen3_moe", **GOOD, key: 9}, 64).config
    assert config.experts.count == 9 and config.experts.chosen == 8
