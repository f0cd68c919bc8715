"""Small random checkpoints of every architecture, made by `transformers`, and its logits."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.compiler.models.helpers.hybrid_cases import HYBRIDS
from tests.compiler.models.helpers.mixture_cases import GRANITE, MIXTURES

SMALL: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1000.0, "factor": 2.0}
PLAIN = {"rope_type": "default", "rope_theta": 700.0}
LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}
PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
"""Of Phi-4-mini."""
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1000.0,
    "short_factor": [1.0 + 0.05 * i for i in range(8)],
    "long_factor": [1.0 + 0.5 * i for i in range(8)],
    "original_max_position_embeddings": 32,
}
# Most matrices are 256x64, 64x64 or 64x128, so that they share kernels. A sequence's first token
# gives (k . q) v, which is normalised: with a small eps the bound would be for the rounding of a
# k . q near 0.
DELTA = {
    "rms_norm_eps": 1e-3,
    "head_dim": 32,
    "intermediate_size": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
}

DEEPSEEK_YARN = {**YARN, "mscale": 0.8, "mscale_all_dim": 0.6}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 20,
    "qk_rope_head_dim": 12,
    "v_head_dim": 28,
}
FEW_EXPERTS = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "moe_intermediate_size": 24,
    "routed_scaling_factor": 1.5,
}

ALPHA = {"rope_type": "dynamic", "rope_theta": 1000.0, "alpha": 50.0, "factor": 1.0}
MINISTRAL3_ROPE = {
    **YARN,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
    "original_max_position_embeddings": 128,
}
GEMMA4 = {
    "tie_word_embeddings": True,
    "num_hidden_layers": 5,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 9,
    "layer_types": [*["sliding_attention", "full_attention"] * 2, "full_attention"],
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 131,
    "final_logit_softcapping": 30.0,
    "num_experts": 5,
    "top_k_experts": 2,
    "moe_intermediate_size": 32,
}
GEMMA3N = {
    "tie_word_embeddings": True,
    "num_hidden_layers": 5,
    "head_dim": 32,
    "sliding_window": 9,
    "layer_types": [*["sliding_attention", "full_attention"] * 2, "full_attention"],
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 131,
    "activation_sparsity_pattern": [0.6, 0.6, 0.0, 0.5, 0.0],
    "laurel_rank": 16,
    "altup_num_inputs": 3,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama-one-kv-head": ("LlamaConfig", {"num_key_value_heads": 1}),
    "llama-head-dim": ("LlamaConfig", {"head_dim": 32, "attention_bias": True, "mlp_bias": True}),
    "llama-llama3-rope": ("LlamaConfig", {"rope_parameters": LLAMA3_ROPE}),
    "llama-yarn": ("LlamaConfig", {"rope_parameters": YARN}),
    "llama-dynamic": ("LlamaConfig", {"rope_parameters": DYNAMIC}),
    "llama-linear": ("LlamaConfig", {"rope_parameters": LINEAR}),
    "mistral": ("MistralConfig", {"sliding_window": 11, "head_dim": 24}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        {
            "head_dim": 32,
            "num_hidden_layers": 3,
            "num_experts": 7,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3_moe-first": (  # of all layers but every second, one expert with its whole probability
        "Qwen3MoeConfig",
        {"num_experts": 5, "num_experts_per_tok": 1, "decoder_sparse_step": 2, "head_dim": 16},
    ),
    **MIXTURES,
    "qwen3_next": ("Qwen3NextConfig", {**DELTA, "full_attention_interval": 2, "num_experts": 0}),
    "qwen3_next-experts": (
        "Qwen3NextConfig",
        {
            **DELTA,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 128,
            "mlp_only_layers": [1],
        },
    ),
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 32, "sliding_window": 9, "query_pre_attn_scalar": 48, "hidden_size": 48},
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {"head_dim": 32, "sliding_window": 9, "num_hidden_layers": 7, "query_pre_attn_scalar": 48},
    ),
    "gemma3n": ("Gemma3nTextConfig", GEMMA3N),
    "gemma4": ("Gemma4TextConfig", GEMMA4),
    "gemma4-experts": (
        "Gemma4TextConfig",
        {
            **GEMMA4,
            "num_kv_shared_layers": 0,
            "num_hidden_layers": 3,
            "layer_types": None,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
        },
    ),
    "gemma": ("GemmaConfig", {"head_dim": 32, "tie_word_embeddings": True}),
    "olmo2": ("Olmo2Config", {"attention_bias": True}),
    "olmo3": (
        "Olmo3Config",
        {
            "sliding_window": 9,
            "num_hidden_layers": 5,
            "rope_parameters": {"full_attention": YARN, "sliding_attention": PLAIN},
        },
    ),
    "smollm3": ("SmolLM3Config", {"num_hidden_layers": 4, "no_rope_layer_interval": 2}),
    "smollm3-window": (
        "SmolLM3Config",
        {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 9},
    ),
    "granite": ("GraniteConfig", GRANITE),
    "exaone4": ("Exaone4Config", {"sliding_window": 9, "num_hidden_layers": 5, "head_dim": 32}),
    "exaone4-full": (
        "Exaone4Config",
        {"sliding_window": None, "head_dim": 16, "layer_types": ["full_attention"] * 2},
    ),
    "hunyuan_v1_dense": ("HunYuanDenseV1Config", {"rope_parameters": ALPHA, "head_dim": 32}),
    "ministral": (
        "MinistralConfig",
        {
            "head_dim": 16,
            "sliding_window": 9,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ),
    "ministral3": ("Ministral3Config", {"rope_parameters": MINISTRAL3_ROPE, "head_dim": 32}),
    "ministral3-long": (
        "Ministral3Config",
        {
            "rope_parameters": {**MINISTRAL3_ROPE, "original_max_position_embeddings": 16},
            "head_dim": 32,
        },
    ),
    "glm": ("GlmConfig", {"head_dim": 32}),
    "glm4": ("Glm4Config", {"head_dim": 32}),
    "ernie4_5": ("Ernie4_5Config", {"head_dim": 32, "use_bias": True}),
    "cohere2": ("Cohere2Config", {"sliding_window": 9, "num_hidden_layers": 5, "logit_scale": 0.5}),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 11, "hidden_size": 48}),
    "nemotron": ("NemotronConfig", {"head_dim": 32, "mlp_bias": True}),
    **HYBRIDS,
    "qwen3_5": ("Qwen3_5TextConfig", {**DELTA, "full_attention_interval": 2}),
    "qwen3_5_moe": (
        "Qwen3_5MoeTextConfig",
        {
            **{key: value for key, value in DELTA.items() if key != "intermediate_size"},
            "full_attention_interval": 2,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 128,
        },
    ),
    "phi3": ("Phi3Config", {}),
    "phi3-partial": ("Phi3Config", {"rope_parameters": PARTIAL}),
    "phi3-longrope-short": (
        "Phi3Config",
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32},
    ),
    "phi3-longrope-long": (
        "Phi3Config",
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": 32},
    ),
    "deepseek_v2": (
        "DeepseekV2Config",
        {**LATENT, "rope_parameters": DEEPSEEK_YARN, "first_k_dense_replace": 1, **FEW_EXPERTS},
    ),
    "deepseek_v2-groups": (
        "DeepseekV2Config",
        {
            **LATENT,
            **FEW_EXPERTS,
            "q_lora_rank": 24,
            "topk_method": "group_limited_greedy",
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
        },
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        {
            **LATENT,
            **FEW_EXPERTS,
            "q_lora_rank": 24,
            "attention_bias": True,
            "rope_parameters": DEEPSEEK_YARN,
            "first_k_dense_replace": 1,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "n_group": 4,
            "topk_group": 2,
        },
    ),
    "mistral4": (
        "Mistral4Config",
        {
            **LATENT,
            "q_lora_rank": 24,
            "rope_parameters": {**MINISTRAL3_ROPE, "original_max_position_embeddings": 16},
            "first_k_dense_replace": 1,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "routed_scaling_factor": 1.5,
            "n_group": 4,
            "topk_group": 2,
        },
    ),
    "glm4_moe_lite": (
        "Glm4MoeLiteConfig",
        {**LATENT, **FEW_EXPERTS, "norm_topk_prob": False, "n_shared_experts": 1},
    ),
    "deepseek_v2-dense": (
        "DeepseekV2Config",
        {**LATENT, "first_k_dense_replace": 2, "q_lora_rank": 24, "attention_bias": True},
    ),
}
RECIPES = {
    "llama": "q8a",
    "mistral": "f32",
    "qwen2": "f16",
    "qwen3": "bf16",
    "qwen3_moe": "q4",
    "qwen3_next": "q8",
    "gemma2": "q8_g16",
    "gemma3": "q4a",
    "gemma4": "q4",
    "gemma3n": "q4",
    "phi3": "q4",
    "gemma": "q4",
    "olmo2": "q4",
    "olmo3": "q4",
    "smollm3": "q4",
    "granite": "q4",
    "exaone4": "q4",
    "hunyuan_v1_dense": "q4",
    "ministral": "q4",
    "ministral3": "q4",
    "glm": "q4",
    "glm4": "q4",
    "ernie4_5": "q4",
    "cohere2": "q4",
    "starcoder2": "q4",
    "nemotron": "q4",
    **dict.fromkeys((case for case in MIXTURES if "-" not in case), "q4"),
}
"""Case -> recipe of its weights, for tests of which one compile of each shows both."""
REPEATED = {
    "nemotron_h", "qwen3_5", "qwen3_5_moe", "lfm2_moe", "granitemoehybrid", "deepseek_v3",
    "glm4_moe_lite", "mistral4", "kimi_linear",
    "mistral", "qwen2", "qwen3", "phi3", "gemma", "olmo2", "olmo3", "smollm3", "granite", "exaone4",
    "hunyuan_v1_dense", "ministral", "ministral3", "glm", "glm4", "ernie4_5", "starcoder2",
    "ernie4_5_moe", "granitemoe", "granitemoeshared", "llama4_text", "minimax_m2", "mixtral",
    "olmoe", "qwen2_moe",
}  # fmt: skip
"""Architectures whose layers are made of the others' parts: llama's with Gemma's window (mistral),
with biases as in `llama-head-dim` (qwen2), with Gemma 3's norms of heads (qwen3), with weights that
checkpoints keep joined (phi3), and the same parts in another order (the rest; cohere2 and nemotron
are those that turn pairs and subtract means; of mixtures glm4_moe and gpt_oss are those whose
routers are corrected, and whose heads have sinks). Elsewhere than on the reference they run in the
long tail, the first four on cpu always."""
CONTEXT = {"phi3-longrope-short": 32}
"""Longest sequence compiled for, where it is not 128."""


def proves(case: str, *targets: str, how: str = "runs") -> list[pytest.MarkDecorator]:
    """The features that a test of a case's logits in mixed batches proves, as marks of a
    parameter."""
    parts = [case.partition("-")[0], "batching"]
    parts += ["window"] if "sliding_window" in CASES[case][1] else []
    return [pytest.mark.feature(part, target, how) for part in parts for target in targets]


def long_if_repeated(case: str) -> list[pytest.MarkDecorator]:
    """The mark of the long tail for one of `REPEATED`."""
    return [pytest.mark.long] if case in REPEATED else []


def make_checkpoint(case: str, folder: Path, seed: int = 0) -> torch.nn.Module:
    """Save a random model as a checkpoint folder; returns it in float64."""
    return save_random(config_of(case), folder, seed)


def config_of(case: str, **more: Any) -> Any:
    """transformers' config of a case; a copy, as some of its classes write into their ropes."""
    name, options = CASES[case]
    return getattr(transformers, name)(**deepcopy({**SMALL, **options, **more}))


UNSCALED = ("gemma4_text", "gemma3n_text")
"""Architectures whose scores are q . k unscaled: trained norms keep them small; with random ones
each token would attend to a single other one, and to a different one after rounding."""


def save_random(config: Any, folder: Path, seed: int = 0) -> torch.nn.Module:
    """Save a random model of that config; returns it in float64."""
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(seed)
    if config.model_type == "mistral4":  # which AutoModelForCausalLM does not know
        model = transformers.Mistral4ForCausalLM._from_config(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(config)
    return save_initialised(model, folder)


def save_initialised(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    """Save a model with random weights of its own; returns it in float64."""
    text = model.config.get_text_config()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _initialise(name, parameter)
            if text.model_type in UNSCALED and "q_norm" in name:
                parameter.mul_(0.25)
        for name, buffer in model.named_buffers():
            if (
                "correction" in name or "expert_bias" in name
            ):  # of routers: as large as what it corrects
                buffer.normal_(0.0, 0.5)
            if "layer_scalar" in name or "std_scale" in name:
                buffer.uniform_(0.5, 1.0)
            if "std_bias" in name:
                buffer.normal_(0.0, 0.5)
            if ".layers.1." in name and name.endswith(("_min", "_max")):  # others are infinite
                buffer.fill_(-1.25 if name.endswith("_min") else 1.0)
    model.save_pretrained(folder, safe_serialization=True)
    return model.double().eval()


def _initialise(name: str, parameter: torch.nn.Parameter) -> None:
    """Scale the weights so that every part matters and logits have a standard deviation of about
    2."""
    if not parameter.numel():
        return
    if "norm" in name:
        parameter.normal_(0.0 if float(parameter.flatten()[0]) == 0 else 1.0, 0.2)
    elif parameter.ndim == 1:
        parameter.normal_(0.0, 0.5)
    elif "embed_tokens" in name or "lm_head" in name:
        parameter.normal_(0.0, 2.0 * parameter.shape[1] ** -0.5)
    else:
        parameter.normal_(0.0, 1.5 * parameter.shape[-1] ** -0.5)


def oracle_logits(model: torch.nn.Module, tokens: list[int]) -> np.ndarray[Any, Any]:
    """Logits float64 [len(tokens), vocab] of one sequence, all at once.

    In float64 throughout: transformers casts to float32 in norms and recurrences, and through a
    state's errors those grow to 2e-4.
    """
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return np.asarray(logits.double().numpy())
