"""Tensors of a Hugging Face folder: widening, shards, and every way a folder can be wrong."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from mlcc_compiler.weights.check import check_tensors
from tests.compiler.weights.hf_folder import TENSORS, hf_folder, raw_safetensors, sharded

ONE = {"x": np.ones(2, np.float32)}
TWO = {"y": np.full(3, 2, np.float32)}
NAMES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_floats_are_widened_exactly(tmp_path: Path, dtype: type) -> None:
    values = np.array([[0.0, -0.0, 1.5], [65504.0, 1e-7, np.inf]]).astype(dtype)
    save_file({"t": values}, hf_folder(tmp_path) / "model.safetensors")
    found = TensorFolder.open(tmp_path).read("t")
    assert found.dtype == np.float32 and found.flags.writeable
    assert np.array_equal(found, values.astype(np.float32))


def test_a_scalar_is_read(tmp_path: Path) -> None:
    save_file({"t": np.array(2, ml_dtypes.bfloat16)}, hf_folder(tmp_path) / "model.safetensors")
    assert TensorFolder.open(tmp_path).read("t") == 2


@pytest.mark.parametrize("code", ["F8_E4M3", "I32", "F64"])
def test_other_dtypes_are_refused_by_name(tmp_path: Path, code: str) -> None:
    size = {"F8_E4M3": 1, "I32": 4, "F64": 8}[code]
    header = {"w.proj": {"dtype": code, "shape": [1], "data_offsets": [0, size]}}
    raw_safetensors(hf_folder(tmp_path) / "model.safetensors", header, bytes(size))
    tensors = TensorFolder.open(tmp_path)
    with pytest.raises(UnsupportedError, match=r"'w\.proj' in model\.safetensors is \w+64|fp8"):
        tensors.read("w.proj")


def test_shards_read_like_one_file(tmp_path: Path) -> None:
    index = {"x": NAMES[0], "y": NAMES[1]}
    tensors = TensorFolder.open(sharded(tmp_path, dict(zip(NAMES, (ONE, TWO), strict=True)), index))
    assert tensors.shapes == {"x": (2,), "y": (3,)} and tensors.nbytes == 20
    assert tensors.read("y").tolist() == [2, 2, 2]
    with pytest.raises(CheckpointError, match="has no tensor 'z'"):
        tensors.read("z")


def refused(folder: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        TensorFolder.open(folder)
    assert "\n" not in caught.value.message


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path, {NAMES[0]: ONE}, {"x": NAMES[0], "y": NAMES[1]})
    refused(folder, f"missing {NAMES[1]} named by")


def test_a_tensor_promised_by_the_index_only(tmp_path: Path) -> None:
    folder = sharded(tmp_path, {NAMES[0]: ONE}, {"x": NAMES[0], "y": NAMES[0]})
    refused(folder, "promises tensors that their shards lack: y")


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    folder = sharded(tmp_path, {NAMES[0]: ONE, NAMES[1]: ONE | TWO}, {"x": NAMES[0], "y": NAMES[1]})
    refused(folder, f"'x' is in {NAMES[0]} and {NAMES[1]}")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/b", "..", "c:x", "a\\b", "."])
def test_an_index_cannot_leave_the_folder(tmp_path: Path, path: str) -> None:
    refused(sharded(tmp_path, {}, {"x": path}), "outside the folder|missing")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}'])
def test_a_broken_index(tmp_path: Path, text: str) -> None:
    folder = sharded(tmp_path, {}, {})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    refused(folder, "weight_map|index.json: (cannot be read|must hold a JSON object)")


def test_a_truncated_shard(tmp_path: Path) -> None:
    path = hf_folder(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(tmp_path, "model.safetensors is truncated.*fetch the checkpoint again")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pytorch_model.bin", "pickled weights, which mlcc never loads.*save_pretrained"),
        ("adapter_model.safetensors", "LoRA adapter; merge it"),
        ("model-00001-of-00002.safetensors", "shards but no model.safetensors.index.json"),
        ("README.md", "no model.safetensors .*safetensors only"),
    ],
)
def test_no_weights_that_can_be_read(tmp_path: Path, name: str, message: str) -> None:
    hf_folder(tmp_path, model__safetensors=None)
    (tmp_path / name).write_bytes(b"")
    refused(tmp_path, message)


def test_all_faults_are_named_at_once() -> None:
    expected = {"a": (1, 2), "b": (3,), "c": ()}
    found = {"a": (2, 1), "c": (), "d": (4,), "layers.0.rotary_emb.inv_freq": (8,)}
    with pytest.raises(CheckpointError) as caught:
        check_tensors(expected, found)
    message = caught.value.message
    assert "1 missing: b; 1 extra: d; 1 misshapen: a is 2x1, not 1x2" in message
    assert "inv_freq" not in message and "\n" not in message


def test_harmless_extras_are_an_architectures_choice() -> None:
    found = {"a": (1,), "lm_head.weight": (2,)}
    check_tensors({"a": (1,)}, found, [r"^lm_head\.weight$"])
    with pytest.raises(CheckpointError, match=r"1 extra: lm_head\.weight"):
        check_tensors({"a": (1,)}, found)


def test_a_long_list_is_counted() -> None:
    with pytest.raises(CheckpointError, match=r"100 missing: t000, .*t019 and 80 more") as caught:
        check_tensors({f"t{i:03}": (1,) for i in range(100)}, {})
    assert "t020" not in caught.value.message


def test_tensors_of_the_helper_are_sound(tmp_path: Path) -> None:
    tensors = TensorFolder.open(hf_folder(tmp_path))
    assert {name: tensors.read(name).tolist() for name in tensors.shapes} == {
        name: values.tolist() for name, values in TENSORS.items()
    }
