"""Multimodal checkpoints: the text part is compiled, config and names are unwrapped, and the towers
are left out.

Saved by `transformers`' own classes of those models, whose logits of a text are the oracle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import (
    CASES,
    SMALL,
    make_checkpoint,
    save_initialised,
)
from tests.compiler.models.helpers.mixed import capacity_of, reference, run_mixed

EYES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
EYES |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
QWEN_EYES = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2}
QWEN_EYES |= {"out_hidden_size": 64, "num_position_embeddings": 16}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ministral3": ("Mistral3", "ministral3", EYES),
    "mistral": ("Mistral3", "mistral", EYES),
    "gemma3": ("Gemma3", "gemma3_text", EYES),
    "gemma4": ("Gemma4", "gemma4_text", {**EYES, "num_key_value_heads": 2, "head_dim": 16}),
    "llama4_text": ("Llama4", "llama4_text", EYES),
    "qwen3_5": ("Qwen3_5", "qwen3_5_text", QWEN_EYES),
    "qwen3_5_moe": ("Qwen3_5Moe", "qwen3_5_moe_text", QWEN_EYES),
}
"""Case of its text -> transformers' name of the whole, the text's type in it, and its tower."""
IMAGES = {"image_token_index": 0, "image_token_id": 0, "video_token_id": 0, "boi_token_index": 0}
"""Ids that no text here has."""


def whole(case: str) -> torch.nn.Module:
    """A small model that sees."""
    name, kind, eyes = MODELS[case]
    text = {"model_type": kind, **SMALL, **CASES[case][1]}
    more = {**IMAGES, "tie_word_embeddings": text["tie_word_embeddings"]}
    made = getattr(transformers, f"{name}Config")(text_config=text, vision_config=eyes, **more)
    made._attn_implementation = made._experts_implementation = "eager"
    torch.manual_seed(0)
    model: torch.nn.Module = getattr(transformers, f"{name}ForConditionalGeneration")(made)
    return model


@pytest.mark.parametrize("case", MODELS)
def test_the_text_of_a_model_that_sees(case: str, tmp_path: Path) -> None:
    oracle = save_initialised(whole(case), tmp_path)
    if case == "llama4_text":  # whose whole fails behind its logits
        oracle = oracle.language_model
    checkpoint = Checkpoint.open(tmp_path)
    assert any(_sees(name) for name in checkpoint.tensors.shapes)
    plan = make_plan(
        checkpoint,
        get_target("reference"),
        Options(quant="f32", context=128, max_batch=8, vision=False),
    )
    assert not any(_sees(source) for source in plan.sources.values())
    assert run_mixed(reference(plan, capacity_of(plan)), oracle, 128, spread=0.5) < 5e-5


def notes_of(folder: Path, vision: bool) -> tuple[str, ...]:
    options = Options(quant="f32", context=128, max_batch=8, vision=vision)
    return make_plan(Checkpoint.open(folder), get_target("reference"), options).notes


def test_a_tower_that_is_not_built_is_named(tmp_path: Path) -> None:
    """Of Gemma 3n, whose tower is timm's."""
    make_checkpoint("gemma3n", tmp_path)
    tensors, path = load_file(tmp_path / "model.safetensors"), tmp_path / "config.json"
    tensors = {f"model.language_{name}": tensor for name, tensor in tensors.items()}
    seen = {"model.vision_tower.timm_model.conv_stem.weight": np.zeros((4, 4), np.float32)}
    save_file({**tensors, **seen}, tmp_path / "model.safetensors")
    inner = json.loads(path.read_text())
    whole = {"model_type": "gemma3n", "text_config": inner, "vision_config": {}}
    path.write_text(json.dumps(whole))
    notes = [notes_of(tmp_path, vision) for vision in (True, False)]
    assert any("the vision tower of 'gemma3n' is not built" in note for note in notes[0])
    assert len(notes[1]) == len(notes[0]) - 1


def test_an_audio_tower_that_is_not_built_is_named(tmp_path: Path) -> None:
    """The text is read."""
    save_initialised(whole("llama4_text"), tmp_path)
    tensors, path = load_file(tmp_path / "model.safetensors"), tmp_path / "config.json"
    heard = {"model.audio_tower.output_proj.weight": np.zeros((4, 4), np.float32)}
    save_file({**tensors, **heard}, tmp_path / "model.safetensors")
    config = {**json.loads(path.read_text()), "vision_config": None, "audio_config": {}}
    path.write_text(json.dumps(config))
    (note,) = [note for note in notes_of(tmp_path, True) if "reads no sound" in note]
    assert note.startswith("the audio tower of 'llama4' is not built: it reads no sound; built are")
    assert note.endswith("voxtral, gemma3n, gemma4")


def _sees(tensor: str) -> bool:
    return "vision" in tensor or "visual" in tensor
