"""Files that people have in the place of the right ones: what is there, and what to type."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcc.errors import MlccError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.formats.open import quantization_of
from mlcc_compiler.checkpoint.open import open_checkpoint
from tests.compiler.weights.hf_folder import CONFIG, hf_folder

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n"
LFS = "is a Git LFS pointer, not the file itself; type `git lfs pull` in its folder"


def error(folder: Path) -> str:
    with pytest.raises(MlccError) as caught:
        checkpoint = open_checkpoint(folder)
        _ = checkpoint.tokenizer
        checkpoint.tensors.check_dtypes(checkpoint.tensors.shapes)
    return caught.value.message


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_pointer_of_git_lfs(name: str, tmp_path: Path) -> None:
    hf_folder(tmp_path, **{name.replace(".", "__"): POINTER})
    message = error(tmp_path)
    assert name in message and LFS in message


def test_a_pointer_in_place_of_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(POINTER)
    assert error(path) == f"{path}: {LFS}"


@pytest.mark.parametrize("name", ["llama.safetensors", "gptq_model-4bit-128g.safetensors"])
def test_one_file_of_another_name(name: str, tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "a model")
    shutil.move(folder / "model.safetensors", folder / name)
    assert error(folder) == (
        f"{folder}: has its weights in '{name}' and no model.safetensors; give it that name: "
        f"`mv '{folder}/{name}' '{folder}/model.safetensors'`"
    )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["model-00001-of-00002", "model-00002-of-00002"], "no model.safetensors.index.json"),
        (["model-00001-of-00002"], "no model.safetensors.index.json"),
        (["consolidated"], "in Mistral's own layout"),
    ],
)
def test_several_files_without_an_index(names: list[str], words: str, tmp_path: Path) -> None:
    hf_folder(tmp_path)
    for name in names:
        shutil.copy(tmp_path / "model.safetensors", tmp_path / f"{name}.safetensors")
    (tmp_path / "model.safetensors").unlink()
    message = error(tmp_path)
    assert names[0] in message and words in message and "fetch" in message


@pytest.mark.parametrize("quantization", [None, {"quant_method": "fp8"}])
def test_fp8_without_its_scale(quantization: Any, tmp_path: Path) -> None:
    hf_folder(tmp_path, config__json={**CONFIG, "quantization_config": quantization})
    eights = np.ones((4, 4), np.float32).astype(ml_dtypes.float8_e4m3fn)
    save_file({"a.weight": eights}, tmp_path / "model.safetensors")
    message = error(tmp_path)
    assert "float8_e4m3fn" in message and "'a.weight_scale_inv'" in message


@pytest.mark.parametrize(
    ("name", "settings", "method"),
    [
        ("quantize_config", {"bits": 4, "group_size": 32, "desc_act": False}, "gptq"),
        ("quant_config", {"w_bit": 4, "q_group_size": 32, "version": "GEMM"}, "awq"),
        ("hf_quant_config", {"quantization": {"quant_algo": "NVFP4"}}, "modelopt"),
    ],
)
def test_settings_of_older_quantizers(
    name: str, settings: Any, method: str, tmp_path: Path
) -> None:
    """As vLLM reads them: `get_config_filenames` of GPTQConfig, AWQConfig, ModelOptFp8Config."""
    hf_folder(tmp_path, **{f"{name}__json": settings})
    checkpoint, settings = Checkpoint.open(tmp_path), settings.get("quantization", settings)
    assert checkpoint.outer_config["quantization_config"] == {"quant_method": method, **settings}
    assert checkpoint.notes == (
        f"config.json has no quantization_config; that of {name}.json is used",
    )
    own = {"quant_method": "gptq", "bits": 8}
    for keys in ({"text_config": {"quantization_config": own}}, {"compression_config": own}):
        hf_folder(tmp_path, config__json={**CONFIG, **keys})
        assert Checkpoint.open(tmp_path).outer_config["quantization_config"] == own
    assert quantization_of({"quantization_config": {"load_in_4bit": True}}) == (
        "bitsandbytes", {"load_in_4bit": True}
    )  # fmt: skip
    hf_folder(tmp_path, config__json={**CONFIG, "quantization_config": own})
    assert Checkpoint.open(tmp_path).outer_config["quantization_config"] == own
