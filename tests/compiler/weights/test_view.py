"""Tensors of a checkpoint that stacks or renames them, read one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.name_maps import NAME_MAPS
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from mlcc_compiler.checkpoint.view import NameRule, view_tensors

Array = Any
random = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def open_as(kind: str, folder: Path, tensors: dict[str, Array]) -> Any:
    save_file(tensors, folder / "model.safetensors")
    return view_tensors(TensorFolder.open(folder), NAME_MAPS[kind])


def test_halves_of_stacked_experts(tmp_path: Path) -> None:
    both, down = floats(3, 8, 5), floats(3, 5, 4)
    block = "model.layers.7.block_sparse_moe"
    given = {f"{block}.input_linear.weight": both, f"{block}.output_linear.weight": down}
    found = open_as("granitemoe", tmp_path, given)
    stem = "model.layers.7.mlp.experts"
    assert len(found.shapes) == 9 and found.shapes[f"{stem}.2.up_proj.weight"] == (4, 5)
    np.testing.assert_array_equal(found.read(f"{stem}.2.gate_proj.weight"), both[2, :4])
    np.testing.assert_array_equal(found.read(f"{stem}.0.up_proj.weight"), both[0, 4:])
    np.testing.assert_array_equal(found.read(f"{stem}.1.down_proj.weight"), down[1])
    assert found.nearest[f"{stem}.1.down_proj.weight"] == "f32"


def test_halves_of_experts_that_the_hub_stacks(tmp_path: Path) -> None:
    both, down = floats(3, 8, 5), floats(3, 5, 4)
    mlp = "model.layers.0.mlp.experts"
    given = {f"{mlp}.gate_up_proj": both, f"{mlp}.down_proj": down}
    found = open_as("qwen3_5_moe_text", tmp_path, given)
    np.testing.assert_array_equal(found.read(f"{mlp}.1.gate_proj.weight"), both[1][:4])
    np.testing.assert_array_equal(found.read(f"{mlp}.2.up_proj.weight"), both[2][4:])
    np.testing.assert_array_equal(found.read(f"{mlp}.2.down_proj.weight"), down[2])


def test_neighbours_of_transposed_experts_and_their_biases(tmp_path: Path) -> None:
    both, bias = floats(3, 5, 8), floats(3, 8)
    mlp = "model.layers.0.mlp"
    given = {f"{mlp}.experts.gate_up_proj": both, f"{mlp}.experts.gate_up_proj_bias": bias}
    found = open_as("gpt_oss", tmp_path, given)
    np.testing.assert_array_equal(found.read(f"{mlp}.experts.1.gate_proj.weight"), both[1].T[::2])
    np.testing.assert_array_equal(found.read(f"{mlp}.experts.2.up_proj.weight"), both[2].T[1::2])
    whole = np.concatenate([bias[:, ::2].ravel(), bias[:, 1::2].ravel()])
    np.testing.assert_array_equal(found.read(f"{mlp}.gate_up_bias"), whole)


def test_what_fits_no_form_keeps_its_name(tmp_path: Path) -> None:
    """An odd number of rows, a matrix where all experts were to be, and a name with braces."""
    block = "model.layers.0.block_sparse_moe"
    given = {
        f"{block}.input_linear.weight": floats(3, 7, 5),
        f"{block}.output_linear.weight": floats(3, 5),
        "model.{x}.weight": floats(2),
    }
    assert set(open_as("granitemoe", tmp_path, given).shapes) == set(given)


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    layer = "model.layers.0"
    given = {f"{layer}.block_sparse_moe.gate.weight": floats(2, 2)}
    given[f"{layer}.mlp.gate.weight"] = floats(2, 2)
    with pytest.raises(CheckpointError, match="are both the model's 'model"):
        open_as("mixtral", tmp_path, given)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    found = view_tensors(_folder(tmp_path), (NameRule("a", ("b",)),))
    assert "b" in found and "a" not in found
    with pytest.raises(CheckpointError, match="has no tensor 'c'"):
        found.read("c")
    with pytest.raises(CheckpointError, match="is in no scheme"):
        found.quantized("b")


def _folder(path: Path) -> TensorFolder:
    save_file({"a": floats(2, 2)}, path / "model.safetensors")
    return TensorFolder.open(path)
