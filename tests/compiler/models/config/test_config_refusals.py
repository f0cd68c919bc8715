"""A config.json with a wrong value is refused with the field's name, never by a bug of mlcc."""

from __future__ import annotations

from typing import Any

import pytest

from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc_compiler.models.registry import ARCHITECTURES, build_model

GOOD: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "first_k_dense_replace": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8,
    "low_freq_factor": 1,
    "high_freq_factor": 4,
    "original_max_position_embeddings": 32,
}
SPARSE = {"first_k_dense_replace": 0}
COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
EXPERTS = 16
"""What is refused does not depend on their number, and to build hundreds takes most of the time."""


@pytest.mark.parametrize(
    ("kind", "wrong", "gist"),
    [
        ("llama", {"hidden_size": "64"}, "'hidden_size' must be a positive integer, got '64'"),
        ("llama", {"num_key_value_heads": "x"}, "'num_key_value_heads'"),
        ("llama", {"rms_norm_eps": None}, "'rms_norm_eps' must be a number, got None"),
        ("llama", {"rms_norm_eps": "NaN"}, "'rms_norm_eps'"),
        ("llama", {"rope_theta": "big"}, "'rope_theta'"),
        ("llama", {"head_dim": 15}, "'head_dim' must be an even number"),
        ("phi3", {"partial_rotary_factor": 3.0}, "'partial_rotary_factor'"),
        ("llama", {"rope_scaling": "linear"}, "'rope_scaling' must be an object"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 0}}, "'factor'"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": [2]}}, "'factor'"),
        ("llama", {"rope_scaling": {**LLAMA3, "low_freq_factor": 5}}, "'low_freq_factor'"),
        ("llama", {"rope_scaling": {**LLAMA3, "factor": -1}}, "'factor'"),
        ("llama", {"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2}}, "not fit"),
        ("mistral", {"sliding_window": 0}, "'sliding_window'"),
        ("qwen2", {"max_window_layers": "x"}, "does not fit"),
        ("qwen3", {"layer_types": ["full_attention"]}, "a list of 2, one for each layer"),
        ("qwen2", {"layer_types": ["full_attention", "linear_attention"]}, "'linear_attention'"),
        ("qwen3_moe", {"num_local_experts": 6}, "'num_experts_per_tok' must be at most the number"),
        ("qwen3_moe", {"num_experts": 10**6}, "'num_experts' must be at most 1024"),
        ("qwen3_next", {"num_experts": 10**6}, "'num_experts' must be at most 1024"),
        ("qwen3_moe", {"mlp_only_layers": [2]}, "a list of layers from 0 to 1, got [2]"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "'decoder_sparse_step'"),
        ("qwen3_moe", {"moe_intermediate_size": None}, "'moe_intermediate_size'"),
        ("glm4_moe", {**SPARSE, "n_group": 3}, "'n_group' must be groups of two or more"),
        ("glm4_moe", {**SPARSE, "topk_group": 2}, "'topk_group'"),
        ("glm4_moe", {"first_k_dense_replace": -1}, "'first_k_dense_replace'"),
        ("ernie4_5_moe", {"moe_k": 65}, "'moe_k' must be at most the number of experts, 64"),
        ("ernie4_5_moe", {"moe_layer_interval": 0}, "'moe_layer_interval'"),
        ("gpt_oss", {"swiglu_limit": None}, "'swiglu_limit'"),
        ("gpt_oss", {"num_experts_per_tok": 129}, "'num_experts_per_tok' must be at most"),
        ("llama4_text", {"no_rope_layers": [1, 2]}, "'no_rope_layers' must be a list of 0 and 1"),
        ("gemma2", {"attn_logit_softcapping": "x"}, "'attn_logit_softcapping'"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "'query_pre_attn_scalar'"),
        ("gemma3", {"sliding_window_pattern": 0}, "'sliding_window_pattern'"),
        ("gemma3", {"rope_parameters": {"sliding_attention": [1]}}, "does not fit"),
        ("qwen3_next", {"layer_types": ["sliding_attention"] * 2}, "'sliding_attention'"),
        ("qwen3_next", {"linear_num_value_heads": 24}, "'linear_num_value_heads'"),
        ("qwen3_next", {"mlp_only_layers": [2]}, "'mlp_only_layers'"),
        ("phi3", {"rope_scaling": {"type": "su", "short_factor": 3}}, "'short_factor'"),
        ("deepseek_v2", {"kv_lora_rank": 0}, "'kv_lora_rank'"),
        ("deepseek_v2", {"q_lora_rank": "x"}, "'q_lora_rank'"),
        ("deepseek_v2", {"qk_rope_head_dim": 15}, "'qk_rope_head_dim' must be an even number"),
        ("deepseek_v2", {"first_k_dense_replace": -1}, "'first_k_dense_replace'"),
        ("deepseek_v2", {"first_k_dense_replace": 0}, "'num_experts_per_tok'"),
        ("phi3", {"rope_scaling": {"type": "su", "short_factor": ["a"] * 8}}, "'short_factor'"),
    ],
)
def test_a_wrong_value_is_refused(kind: str, wrong: dict[str, Any], gist: str) -> None:
    build_model({"model_type": kind, **GOOD}, 64)
    with pytest.raises(CheckpointError) as error:
        build_model({"model_type": kind, **GOOD, **wrong}, 64)
    assert gist in str(error.value)
    assert "fetch the checkpoint's config.json again" in str(error.value)


@pytest.mark.parametrize(
    "other",
    [
        {"topk_method": "noaux_tc"},
        {"scoring_func": "sigmoid"},
        {"norm_topk_prob": True},
        {"moe_layer_freq": 2},
    ],
    ids=str,
)
def test_other_routings_of_deepseek_are_refused(other: dict[str, Any]) -> None:
    sparse = {"first_k_dense_replace": 1, "num_experts_per_tok": 2}
    hf = {"model_type": "deepseek_v2", **GOOD, **sparse, **other}
    ((key, _),) = other.items()
    with pytest.raises(UnsupportedError, match=f"'{key}' .* is not supported, only"):
        build_model(hf, 64)
    build_model({**hf, "first_k_dense_replace": 2}, 64)  # no layer is routed


@pytest.mark.parametrize(
    ("kind", "other", "gist"),
    [
        ("deepseek_v3", {"rope_interleave": False}, "'rope_interleave'"),
        ("deepseek_v3", {"topk_method": "greedy"}, "'topk_method'"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "'scoring_func'"),
        ("deepseek_v3", {"partial_rotary_factor": 0.5}, "'partial_rotary_factor'"),
        ("deepseek_v3", {"n_group": 5}, "'n_group'"),
        ("deepseek_v3", {"head_dim": 24}, "'head_dim'"),
        ("glm4_moe_lite", {"mlp_layer_types": ["sparse", "dense"]}, "'mlp_layer_types'"),
        ("mamba2", {"n_groups": 3}, "'n_groups'"),
        ("mamba2", {"expand": 3}, "'expand'"),
        ("mamba2", {"conv_kernel": 1}, "'conv_kernel'"),
        ("mamba2", {"time_step_limit": [1.0, 0.5]}, "'time_step_limit'"),
        ("mamba2", {"hidden_act": "tanh"}, "activation 'tanh'"),
        ("lfm2", {"layer_types": ["conv", "sliding_attention"]}, "'sliding_attention'"),
        ("lfm2_moe", {"layer_types": None}, "'layer_types'"),
        ("lfm2_moe", {"layer_types": ["conv"] * 2, "num_dense_layers": -1}, "'num_dense_layers'"),
        ("falcon_h1", {"mlp_multipliers": [1.0]}, "'mlp_multipliers'"),
        ("falcon_h1", {"ssm_multipliers": [1.0] * 4}, "'ssm_multipliers'"),
        ("granitemoehybrid", {"mamba_d_head": 8}, "'mamba_d_head'"),
        ("nemotron_h", {"layers_block_type": ["moe"], "n_group": 3}, "'n_group'"),
        ("nemotron_h", {"layers_block_type": ["moe"], "moe_latent_size": 0}, "'moe_latent_size'"),
        ("nemotron_h", {"hybrid_override_pattern": "M?"}, "'layers_block_type'"),
        ("nemotron_h", {"attention_head_dim": 64}, "'attention_head_dim'"),
    ],
)
def test_fields_of_hybrids_and_routers(kind: str, other: dict[str, Any], gist: str) -> None:
    scans = {"num_heads": 8, "n_groups": 4, "mamba_n_heads": 8, "mamba_d_ssm": None}
    hf = {"model_type": kind, **GOOD, **scans, "hybrid_override_pattern": "M-*"}
    if kind.startswith(("deepseek", "glm")):
        hf |= {"n_routed_experts": 16, "num_experts_per_tok": 2, "first_k_dense_replace": 1}
        hf |= {"qk_rope_head_dim": 16}
    if kind == "lfm2_moe":
        hf["layer_types"] = ["conv"] * GOOD["num_hidden_layers"]
    build_model(hf, 64)
    with pytest.raises(MlccError) as error:
        build_model({**hf, **other}, 64)
    assert gist in str(error.value)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("value", [None, "x", [], {}, -1, 0, 1.5, True], ids=repr)
def test_no_value_of_any_field_is_a_bug(kind: str, value: Any) -> None:
    defaults = ARCHITECTURES[kind].DEFAULTS
    few = {name: EXPERTS for name in COUNTS if (defaults.get(name) or 0) > EXPERTS}
    whole = {"model_type": kind, **defaults, **GOOD, **few}
    for key in (*whole, "rope_parameters", "rope_scaling", "layer_types", "rope_theta"):
        try:
            config = build_model({**whole, key: value}, 64).config
        except MlccError:
            continue
        assert config.num_layers == len(config.windows) > 0


@pytest.mark.parametrize(
    ("kind", "near_miss", "gist"),
    [
        ("olmoe", {"clip_qkv": 8.0}, "'clip_qkv' 8.0 is not supported"),
        ("gemma", {"use_bidirectional_attention": True}, "encoder of Gemma 1.*EmbeddingGemma"),
        ("gemma2", {"use_bidirectional_attention": True}, "encoder of Gemma 2.*EmbeddingGemma"),
        ("ernie4_5_moe", {"use_bias": True}, "'use_bias' is not supported with experts"),
        ("minimax_m2", {"scoring_func": "softmax"}, "'scoring_func' 'softmax' .*only 'sigmoid'"),
        ("minimax_m2", {"attn_type_list": [0, 1]}, "'attn_type_list' .*M2"),
        ("llama4_text", {"num_experts_per_tok": 2}, "'num_experts_per_tok' 2 .*Scout"),
        ("llama4_text", {"attention_chunk_size": 32}, "use --context 32"),
        ("llama4_text", {"floor_scale": 64}, "'floor_scale' matters; use --context 63"),
    ],
)
def test_what_is_nearly_one_of_these_is_refused(
    kind: str, near_miss: dict[str, Any], gist: str
) -> None:
    with pytest.raises(UnsupportedError, match=gist):
        build_model({"model_type": kind, **GOOD, **near_miss}, 64)


@pytest.mark.parametrize(
    ("kind", "near"),
    [
        ("phimoe", "mixtral"),
        ("gemma4_unified_text", "gemma4"),
        ("ernie", "bert"),
        ("minimax", "minimax_m2"),
        ("olmo_hybrid", "qwen3_next"),
        ("lfm3", "lfm2"),
        ("falcon_mamba", "mamba2"),
        ("deepseek_v32", "deepseek_v3"),
    ],
)
def test_what_is_not_there_names_the_nearest_that_is(kind: str, near: str) -> None:
    with pytest.raises(UnsupportedError, match=f"the nearest that is: '{near}'; these are"):
        build_model({"model_type": kind, **GOOD}, 64)
