"""Defaults of absent config.json fields, compared with `transformers`' config classes; null is not
absence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, report_plan
from mlcc_compiler.models.registry import ARCHITECTURES, build_model
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import SMALL, make_checkpoint, save_random
from tests.compiler.models.helpers.mixed import capacity_of, reference, run_mixed

CLASSES = {
    "llama": "LlamaConfig",
    "mistral": "MistralConfig",
    "qwen2": "Qwen2Config",
    "qwen3": "Qwen3Config",
    "qwen3_moe": "Qwen3MoeConfig",
    "gemma2": "Gemma2Config",
    "gemma3_text": "Gemma3TextConfig",
    "gemma3n_text": "Gemma3nTextConfig",
    "gemma4_text": "Gemma4TextConfig",
    "phi3": "Phi3Config",
    "qwen3_next": "Qwen3NextConfig",
    "gemma": "GemmaConfig",
    "olmo2": "Olmo2Config",
    "olmo3": "Olmo3Config",
    "smollm3": "SmolLM3Config",
    "granite": "GraniteConfig",
    "exaone4": "Exaone4Config",
    "hunyuan_v1_dense": "HunYuanDenseV1Config",
    "ministral": "MinistralConfig",
    "mistral4": "Mistral4Config",
    "ministral3": "Ministral3Config",
    "glm": "GlmConfig",
    "glm4": "Glm4Config",
    "ernie4_5": "Ernie4_5Config",
    "cohere2": "Cohere2Config",
    "starcoder2": "Starcoder2Config",
    "nemotron": "NemotronConfig",
    "deepseek_v3": "DeepseekV3Config",
    "glm4_moe_lite": "Glm4MoeLiteConfig",
    "kimi_linear": "KimiLinearConfig",
    "mamba2": "Mamba2Config",
    "lfm2": "Lfm2Config",
    "lfm2_moe": "Lfm2MoeConfig",
    "granitemoehybrid": "GraniteMoeHybridConfig",
    "falcon_h1": "FalconH1Config",
    "nemotron_h": "NemotronHConfig",
    "qwen3_5_text": "Qwen3_5TextConfig",
    "qwen3_5_moe_text": "Qwen3_5MoeTextConfig",
    "mixtral": "MixtralConfig",
    "qwen2_moe": "Qwen2MoeConfig",
    "olmoe": "OlmoeConfig",
    "granitemoe": "GraniteMoeConfig",
    "glm4_moe": "Glm4MoeConfig",
    "ernie4_5_moe": "Ernie4_5_MoeConfig",
    "minimax_m2": "MiniMaxM2Config",
    "gpt_oss": "GptOssConfig",
    "llama4_text": "Llama4TextConfig",
}
ARGUMENTS = {"sliding_window_pattern", "full_attention_interval", "partial_rotary_factor"}
"""Arguments of their config classes that are not fields."""
_ROUTER = "topk_method", "scoring_func", "moe_layer_freq", "first_k_dense_replace"
OURS = {
    ("mamba2", "max_position_embeddings"),
    *(("deepseek_v3", key) for key in _ROUTER[:3]),
    ("mistral4", "first_k_dense_replace"),
    *(("glm4_moe_lite", key) for key in _ROUTER),
}
"""Fields of the hub's configs that transformers' lack, or that both lack."""
SIZES = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
# text_config of google/gemma-3-4b-it: the rest are Gemma3TextConfig's defaults.
GEMMA_3_4B = {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "model_type": "gemma3_text",
    "num_hidden_layers": 34,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024,
}


@pytest.mark.parametrize("kind", CLASSES)
def test_defaults_are_those_of_transformers(kind: str) -> None:
    theirs = getattr(transformers, CLASSES[kind])
    assert ARCHITECTURES[kind].DEFAULTS
    for key, value in ARCHITECTURES[kind].DEFAULTS.items():
        if key not in ARGUMENTS and (kind, key) not in OURS:
            assert getattr(theirs, key) == value, key


def test_a_null_stays_null() -> None:
    silent = {"model_type": "mistral", "num_key_value_heads": None, **SIZES}
    assert build_model(silent, 64).config.windows == (4096, 4096)
    assert build_model(silent, 64).config.num_kv_heads == 4
    assert build_model({**silent, "sliding_window": None}, 64).config.windows == (None, None)


def test_gemma_3_as_published() -> None:
    config = ARCHITECTURES["gemma3"].read_config(
        {**ARCHITECTURES["gemma3"].DEFAULTS, **GEMMA_3_4B}, 4096
    )
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (8, 4, 256)
    assert (config.vocab_size, config.max_position) == (262208, 131072)
    assert config.tie_embeddings and config.attention_scale == 1 / 16
    assert config.windows[:6] == (1024,) * 5 + (None,)


def test_a_multimodal_gemma_3_equals_transformers(tmp_path: Path) -> None:
    """Silent text_config, old spelling of rope, prefixed names, a vision tower to leave out."""
    text = {k: SMALL[k] for k in ("vocab_size", "hidden_size", "intermediate_size")}
    text |= {"num_hidden_layers": 7, "sliding_window": 9, "rope_theta": 5000.0}
    text |= {"rope_local_base_freq": 700.0, "rope_scaling": GEMMA_3_4B["rope_scaling"]}
    oracle = save_random(transformers.Gemma3TextConfig(**text), tmp_path)
    outer = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "eos_token_id": [1, 106],
        "text_config": {**text, "model_type": "gemma3_text"},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152},
    }
    (tmp_path / "config.json").write_text(json.dumps(outer))
    tensors = {
        f"language_model.{k}": v for k, v in load_file(tmp_path / "model.safetensors").items()
    }
    tensors["vision_tower.vision_model.embeddings.patch_embedding.weight"] = torch.ones(2, 3)
    tensors["multi_modal_projector.mm_soft_emb_norm.weight"] = torch.ones(3)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    options = Options(quant="f32", context=128, max_batch=8, vision=False)
    plan = make_plan(Checkpoint.open(tmp_path), get_target("reference"), options)
    assert plan.config.max_position == 131072
    assert run_mixed(reference(plan, capacity_of(plan)), oracle, 128) < 2e-5


@pytest.mark.parametrize(("context", "reported"), [(32, False), (33, True)])
def test_longrope_tells_which_factors_it_takes(
    tmp_path: Path, context: int, reported: bool
) -> None:
    make_checkpoint("phi3-longrope-long", tmp_path)
    Tokenizer(WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    plan = make_plan(
        Checkpoint.open(tmp_path), get_target("reference"), Options(quant="f32", context=context)
    )
    decisions: dict[str, str] = {}
    report_plan(plan, Progress(decided=decisions.__setitem__))
    assert ("long factors" in decisions.get("rope", "")) == reported
