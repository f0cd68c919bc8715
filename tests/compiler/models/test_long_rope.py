"""Rotary embeddings of the families at 32k and 128k, with published parameters and tiny widths:
frequencies and tables against `transformers`, at sampled positions.

Both sides compute frequencies in float32 by different powers: an angle of 131,071 radians has an
error of some hundredths. So the two frequencies must agree to a few units in the last place;
another base, factor or ramp differs by much more at every position.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

from mlcc.device.reference import ops as twin
from mlcc_compiler.models.registry import build_model, extends_context, with_defaults
from mlcc_compiler.models.rope import Rope

ULPS = 4e-7
"""Relative bound of a frequency: three units in the last place of float32, and the error of the
product."""
POSITIONS = (0, 1, 4095, 8191, 32767, 65535, 131071)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0}
TINY = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
KINDS = ("full_attention", "sliding_attention")
BOTH_KINDS = {"num_hidden_layers": 2, "layer_types": list(KINDS)}
LATENT = {
    "num_key_value_heads": 2,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}


@dataclass(frozen=True)
class Case:
    """A family: its config class, the relevant fields, and its longest context."""

    config: str
    options: dict[str, Any]
    context: int = 131072
    kinds: tuple[str, ...] | tuple[None] = (None,)
    """Types of layers with a table each, in the order in which models here have them."""


CASES: dict[str, Case] = {
    "llama-3.1": Case(
        "LlamaConfig", {"head_dim": 128, "rope_parameters": {**LLAMA3, "rope_theta": 5e5}}
    ),
    "llama-linear": Case(
        "LlamaConfig",
        {
            "head_dim": 128,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "linear", "factor": 32.0, "rope_theta": 1e4},
        },
    ),
    "llama-dynamic": Case(
        "LlamaConfig",
        {
            "head_dim": 128,
            "max_position_embeddings": 8192,
            "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
        },
    ),
    "qwen3-yarn": Case(
        "Qwen3Config",
        {
            "head_dim": 128,
            "rope_parameters": {
                **YARN,
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
                "rope_theta": 1e6,
            },
        },
    ),
    "gpt-oss": Case(
        "GptOssConfig",
        {
            "head_dim": 64,
            "num_local_experts": 4,
            "rope_parameters": {
                **YARN,
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "truncate": False,
                "rope_theta": 150000.0,
            },
        },
    ),
    "phi-3": Case(
        "Phi3Config",
        {
            "hidden_size": 192,
            "pad_token_id": 0,
            "original_max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "original_max_position_embeddings": 4096,
                "short_factor": [1.0 + i / 40 for i in range(48)],
                "long_factor": [1.0 + 1.3 * i for i in range(48)],
            },
        },
    ),
    "phi-4-mini": Case(
        "Phi3Config",
        {
            "hidden_size": 256,
            "pad_token_id": 0,
            "original_max_position_embeddings": 4096,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.75,
                "original_max_position_embeddings": 4096,
                "short_factor": [1.0] * 48,
                "long_factor": [1.0 + 0.7 * i for i in range(48)],
            },
        },
    ),
    "gemma-3": Case(
        "Gemma3TextConfig",
        {
            **BOTH_KINDS,
            "head_dim": 256,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        kinds=KINDS,
    ),
    "olmo-3": Case(
        "Olmo3Config",
        {
            **BOTH_KINDS,
            "head_dim": 128,
            "rope_parameters": {
                "full_attention": {
                    **YARN,
                    "factor": 8.0,
                    "original_max_position_embeddings": 8192,
                    "attention_factor": 1.2079441541679836,
                    "rope_theta": 5e5,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
            },
        },
        context=65536,
        kinds=KINDS,
    ),
    "exaone-4": Case(
        "Exaone4Config",
        {
            "head_dim": 128,
            "sliding_window": None,
            "layer_types": ["full_attention"],
            "rope_parameters": {**LLAMA3, "factor": 16.0, "rope_theta": 1e6},
        },
    ),
    "smollm-3": Case(
        "SmolLM3Config",
        {
            "head_dim": 128,
            "pad_token_id": 0,
            "no_rope_layers": [1],
            "rope_parameters": {
                **YARN,
                "factor": 2.0,
                "original_max_position_embeddings": 65536,
                "rope_theta": 5e6,
            },
        },
    ),
    "ministral-3": Case(
        "Ministral3Config",
        {
            "head_dim": 128,
            "rope_parameters": {
                **YARN,
                "factor": 16.0,
                "original_max_position_embeddings": 16384,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
                "rope_theta": 1e6,
            },
        },
        context=262144,
    ),
    "hunyuan": Case(
        "HunYuanDenseV1Config",
        {
            "head_dim": 128,
            "rope_parameters": {
                "rope_type": "dynamic",
                "alpha": 1000.0,
                "factor": 1.0,
                "rope_theta": 1e4,
            },
        },
        context=262144,
    ),
    "gemma-4": Case(
        "Gemma4TextConfig",
        {
            **BOTH_KINDS,
            "head_dim": 256,
            "global_head_dim": 512,
            "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
            "layer_types": list(reversed(KINDS)),
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "proportional",
                    "rope_theta": 1e6,
                    "partial_rotary_factor": 0.25,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        kinds=("sliding_attention", "full_attention"),
    ),
    "glm-4": Case(
        "Glm4Config",
        {
            "head_dim": 128,
            "pad_token_id": 0,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "qwen-3.5": Case(
        "Qwen3_5TextConfig",
        {
            "head_dim": 256,
            "layer_types": ["full_attention"],
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e7,
                "partial_rotary_factor": 0.25,
                "mrope_section": [11, 11, 10],
                "mrope_interleaved": True,
            },
        },
    ),
    "minimax-m2": Case(
        "MiniMaxM2Config",
        {
            "head_dim": 128,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e6,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "falcon-h1": Case(
        "FalconH1Config",
        {
            "head_dim": 64,
            "mamba_n_heads": 4,
            "mamba_d_head": 32,
            "mamba_d_ssm": 128,
            "mamba_d_state": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e11},
        },
    ),
    "deepseek-v2": Case(
        "DeepseekV2Config",
        {
            **LATENT,
            "rope_parameters": {
                **YARN,
                "factor": 40.0,
                "original_max_position_embeddings": 4096,
                "mscale": 0.707,
                "mscale_all_dim": 0.707,
                "rope_theta": 1e4,
            },
        },
    ),
    "deepseek-v3": Case(
        "DeepseekV3Config",
        {
            **LATENT,
            "rope_parameters": {
                **YARN,
                "factor": 40.0,
                "original_max_position_embeddings": 4096,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "rope_theta": 1e4,
            },
        },
    ),
    "mistral-4": Case(
        "Mistral4Config",
        {
            **LATENT,
            "rope_parameters": {
                **YARN,
                "factor": 128.0,
                "original_max_position_embeddings": 8192,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
                "rope_theta": 1e4,
            },
        },
        context=1048576,
    ),
    "kimi-k2": Case(
        "DeepseekV3Config",
        {
            **LATENT,
            "rope_parameters": {
                **YARN,
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "rope_theta": 5e4,
            },
        },
    ),
}


def config_of(name: str) -> Any:
    """transformers' config, of one layer."""
    case = CASES[name]
    longest = {"max_position_embeddings": case.context, **case.options}
    return getattr(transformers, case.config)(**{**TINY, **longest})


@cache
def oracle(name: str) -> Any:
    """transformers' model."""
    if name == "mistral-4":  # which AutoModelForCausalLM does not know
        return transformers.Mistral4ForCausalLM._from_config(config_of(name))
    return transformers.AutoModelForCausalLM.from_config(config_of(name))


def theirs(name: str, positions: list[int], kind: str | None) -> tuple[Any, Any]:
    """(cos, sin) float32 of half the rotary width, as the model computes them for a sequence that
    ends with the last position."""
    x, ids = torch.zeros(1, 1, 1), torch.tensor([positions])
    rotary = oracle(name).model.rotary_emb
    if CASES[name].config == "Qwen3_5TextConfig":
        ids = ids[None].expand(3, 1, -1)
    found = rotary(x, ids) if kind is None else rotary(x, ids, kind)
    if isinstance(found, torch.Tensor):  # DeepSeek V2: complex
        return found[0].real.numpy(), found[0].imag.numpy()
    cos, sin = (part[0].numpy() for part in found)
    if CASES[name].config == "GptOssConfig":  # half the width already
        return cos, sin
    return cos[:, : cos.shape[-1] // 2], sin[:, : sin.shape[-1] // 2]


def ours(name: str, context: int) -> tuple[Rope, ...]:
    """The ropes of the model as it is compiled for a context."""
    hf = json.loads(config_of(name).to_json_string(use_diff=False))
    return build_model(with_defaults(hf), context).config.ropes


@pytest.mark.parametrize("context", [32768, 131072])
@pytest.mark.parametrize("name", CASES)
def test_tables_are_transformers(name: str, context: int) -> None:
    case = CASES[name]
    positions = [p for p in POSITIONS if p < min(context, case.context)]
    positions[-1] = context - 1  # the length by which `transformers` chooses factors
    ropes = ours(name, context)
    assert len(ropes) == len(case.kinds)
    for rope, kind in zip(ropes, case.kinds, strict=True):
        cos, sin = theirs(name, positions, kind)
        half = rope.rotary_dim // 2
        assert cos.shape == (len(positions), half)
        table = twin.rope_table(np.array(positions, np.int32), rope.table(), rope.scale)
        bound = 1e-6 + ULPS * np.outer(positions, rope.table())
        assert (np.abs(table[:, :half] - cos) <= bound).all()
        assert (np.abs(table[:, half:] - sin) <= bound).all()
        assert np.abs(cos[-1] - cos[0]).max() > 0.5  # they say something


@pytest.mark.parametrize("name", ["ministral-3", "mistral-4"])
@pytest.mark.parametrize("context", [16384, 32768, 131072])
def test_queries_grow_as_transformers_has_it(name: str, context: int) -> None:
    length = 16384 if name == "ministral-3" else 8192
    hf = json.loads(config_of(name).to_json_string(use_diff=False))
    growth = build_model(with_defaults(hf), context).config.growth
    if context <= length:
        assert growth is None
        return
    positions = np.array([p for p in (*POSITIONS, length - 1, length) if p < context], np.int32)
    wanted = get_llama_4_attn_scale(torch.tensor(positions)[None], 0.1, length).numpy().ravel()
    found = twin.growth(positions, growth.beta, growth.length).ravel()
    assert np.abs(found - wanted).max() < 1e-6 and wanted.max() > 1.05


def test_dynamic_rope_goes_on_and_no_other_does() -> None:
    """To any length; its case above is sixteen times the original one, four times its factor."""
    assert CASES["llama-dynamic"].context == 16 * config_of("llama-dynamic").max_position_embeddings
    for name, far in (("llama-dynamic", True), ("llama-linear", False), ("hunyuan", False)):
        assert extends_context(json.loads(config_of(name).to_json_string(use_diff=False))) == far
