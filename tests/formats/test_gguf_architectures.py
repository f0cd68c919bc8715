"""A GGUF file of every architecture is the model that the Hugging Face folder is.

Equal configs, frequencies included, and equal tensors: what is computed of those is tested with
the folder's (`models/test_architectures.py`).
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from models.checkpoints import CONTEXT, SMALL, make_checkpoint, save_random

from formats.gguf_of import write_gguf
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.opening import open_checkpoint
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.pipeline import trace
from mlcc_compiler.weights.check import check_tensors

CASES = (
    "llama", "llama-llama3-rope", "llama-linear", "llama-yarn", "mistral", "qwen2", "qwen3",
    "gemma2", "gemma3", "phi3", "phi3-longrope-short", "phi3-longrope-long",
)  # fmt: skip
APPROXIMATE = {"attention_scale", "ropes", "norm_eps"}
"""Written in float32."""


def with_common_scale(path: Path) -> None:
    """Gemma's, of all but its 27B: the only one that a GGUF file can mean."""
    config = json.loads(path.read_text())
    if "query_pre_attn_scalar" in config:
        path.write_text(json.dumps(config | {"query_pre_attn_scalar": config["head_dim"]}))


@pytest.mark.parametrize("case", CASES)
def test_gguf_is_the_same_model(case: str, tmp_path: Path) -> None:
    make_checkpoint(case, tmp_path)
    with_common_scale(tmp_path / "config.json")
    folder = Checkpoint.open(tmp_path)
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "model.gguf"))
    context = CONTEXT.get(case, 128)
    expected, found = (build_model(c.config, context) for c in (folder, file))
    for field in fields(expected.config):
        wanted, got = (getattr(each.config, field.name) for each in (expected, found))
        if field.name == "ropes":
            for one, other in zip(wanted, got, strict=True):
                np.testing.assert_allclose(one.inv_freq, other.inv_freq, rtol=1e-6)
                assert one.scale == pytest.approx(other.scale, rel=1e-6)
        elif field.name in APPROXIMATE:
            assert wanted == pytest.approx(got, rel=1e-6), field.name
        else:
            assert wanted == got, field.name
    traced = trace(found.model)
    check_tensors(dict(zip(traced.names, traced.shapes, strict=True)), file.tensors.shapes)
    for name in traced.names:
        tolerance = 1e-7 if "norm" in name and case.startswith("gemma") else 0
        np.testing.assert_allclose(
            file.tensors.read(name), folder.tensors.read(name), rtol=0, atol=2 * tolerance
        )


def save_experts(folder: Path) -> None:
    """A Qwen3-MoE whose layers all have experts."""
    options = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    config = transformers.Qwen3MoeConfig(**SMALL, **options, head_dim=16, norm_topk_prob=True)
    save_random(config, folder)


def test_experts_lie_in_one_tensor(tmp_path: Path) -> None:
    """Of every layer: llama.cpp's files of Qwen3-MoE have no other kind."""
    save_experts(tmp_path)
    folder = Checkpoint.open(tmp_path)
    file = open_checkpoint(write_gguf(tmp_path, tmp_path / "model.gguf"))
    assert build_model(file.config, 64).config == build_model(folder.config, 64).config
    name = "model.layers.1.mlp.experts.4.down_proj.weight"
    np.testing.assert_array_equal(file.tensors.read(name), folder.tensors.read(name))
    assert set(file.tensors.shapes) == set(folder.tensors.shapes)


def formats(name: str) -> str:
    kinds: dict[str, Any] = {"attn_q": "Q4_0", "attn_k": "Q5_1", "ffn_down": "BF16"}
    return next((kind for part, kind in kinds.items() if f".{part}." in name), "Q8_0")


def test_permuted_rows_keep_their_blocks(tmp_path: Path) -> None:
    """Rows of q and k, put in order as codes and as floats, are the same."""
    from mlcc_compiler.quantization import dequantize

    make_checkpoint("llama", tmp_path)
    tensors = open_checkpoint(write_gguf(tmp_path, tmp_path / "m.gguf", formats)).tensors
    prefix = "model.layers.0.self_attn"
    assert tensors.schemes[f"{prefix}.q_proj.weight"] == "int4_g32"
    assert tensors.schemes[f"{prefix}.k_proj.weight"] == "int5m_g32"
    assert tensors.nearest["model.layers.0.mlp.down_proj.weight"] == "bf16"
    for part in "qk":
        name = f"{prefix}.{part}_proj.weight"
        np.testing.assert_array_equal(dequantize(tensors.quantized(name)), tensors.read(name))
        close = Checkpoint.open(tmp_path).tensors.read(name)
        np.testing.assert_allclose(tensors.read(name), close, atol=0.15)
