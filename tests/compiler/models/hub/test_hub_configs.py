"""The newest architectures with the config.json of their repositories on the hub: real sizes and
fields. `transformers`, whose own config.json the other tests read, renames some and drops
others."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from mlcc_compiler.models.architectures import (
    deepseek_v2,
    glm4_moe,
    gpt_oss,
    minimax_m2,
    qwen3_moe,
    qwen3_next,
)
from mlcc_compiler.models.registry import with_defaults

QWEN = {
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "num_hidden_layers": 48,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_30B_A3B = {
    **QWEN,
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "max_window_layers": 48,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 4,
    "rope_theta": 1000000.0,
    "sliding_window": None,
}
QWEN3_NEXT_80B_A3B = {
    **QWEN,
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "head_dim": 256,
    "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 512,
    "num_attention_heads": 16,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10000000,
    "shared_expert_intermediate_size": 512,
}
DEEPSEEK_V2_LITE: dict[str, Any] = {
    "model_type": "deepseek_v2",
    "attention_bias": False,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV2Config"},
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "topk_group": 1,
    "topk_method": "greedy",
    "v_head_dim": 128,
    "vocab_size": 102400,
}
GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "initial_context_length": 4096,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
        "quant_method": "mxfp4",
    },
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
MINIMAX_M2 = {
    "model_type": "minimax_m2",
    "attn_type_list": [1] * 62,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "max_position_embeddings": 196608,
    "num_attention_heads": 48,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 62,
    "num_key_value_heads": 8,
    "num_local_experts": 256,
    "qk_norm_type": "per_layer",
    "rms_norm_eps": 1e-06,
    "rope_theta": 5000000,
    "rotary_dim": 64,
    "scoring_func": "sigmoid",
    "shared_intermediate_size": 0,
    "tie_word_embeddings": False,
    "use_mtp": True,
    "use_qk_norm": True,
    "use_routing_bias": True,
    "vocab_size": 200064,
}
GLM_4_5_AIR = {
    "model_type": "glm4_moe",
    "attention_bias": True,
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "max_position_embeddings": 131072,
    "moe_intermediate_size": 1408,
    "n_group": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 96,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 46,
    "num_key_value_heads": 8,
    "num_nextn_predict_layers": 1,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "routed_scaling_factor": 1.0,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "use_qk_norm": False,
    "vocab_size": 151552,
}


def read(module: Any, hf: dict[str, Any]) -> Any:
    return module.read_config(with_defaults(hf), 4096)


def test_qwen3_moe() -> None:
    config = read(qwen3_moe, QWEN3_30B_A3B)
    assert config.sparse == (True,) * 48 and config.windows == (None,) * 48
    experts = config.experts
    assert (experts.count, experts.chosen, experts.inner) == (128, 8, 768) and experts.normalise
    assert (config.head_dim, config.num_heads, config.num_kv_heads) == (128, 32, 4)
    assert config.qk_norm and config.ropes[0].rotary_dim == 128
    assert config.ropes[0].inv_freq[1] == pytest.approx(1e6 ** (-1 / 64))


def test_qwen3_next() -> None:
    config = read(qwen3_next, QWEN3_NEXT_80B_A3B)
    assert config.linear == (True, True, True, False) * 12 and config.sparse == (True,) * 48
    delta = config.delta
    assert (delta.k_heads, delta.v_heads, delta.k_dim, delta.v_dim) == (16, 32, 128, 128)
    assert config.taps == 4 and config.ropes[0].rotary_dim == 64
    assert (config.experts.count, config.experts.chosen, config.experts.shared) == (512, 10, 512)


def test_deepseek_v2_lite() -> None:
    config = read(deepseek_v2, DEEPSEEK_V2_LITE)
    assert config.latent.weight == (16 * 256, 512) and config.latent.width == 576
    assert config.query_rank is None and config.dense_layers == 1
    assert (config.experts.count, config.experts.chosen, config.experts.shared) == (64, 6, 2 * 1408)
    temperature = 0.1 * 0.707 * log(40) + 1
    assert config.latent.scale == pytest.approx(192**-0.5 * temperature**2)
    (rope,) = config.ropes
    assert rope.rotary_dim == 64 and rope.scale == 1.0  # mscale / mscale_all_dim
    assert rope.inv_freq[0] == 1 and rope.inv_freq[31] == pytest.approx(1e4 ** (-31 / 32) / 40)


def test_gpt_oss_20b() -> None:
    config = read(gpt_oss, GPT_OSS_20B)
    assert config.windows == (128, None) * 12 and config.qkv_bias and config.output_bias
    experts = config.experts
    assert (experts.count, experts.chosen, experts.inner) == (32, 4, 2880) and experts.normalise
    assert experts.clamped == (1.702, 7.0) and experts.biased and experts.router_bias
    (rope,) = config.ropes
    assert rope.rotary_dim == 64 and rope.scale == pytest.approx(0.1 * log(32) + 1)
    assert rope.inv_freq[31] == pytest.approx(150000 ** (-31 / 32) / 32)


def test_minimax_m2() -> None:
    config = read(minimax_m2, MINIMAX_M2)
    assert config.ropes[0].rotary_dim == 64 and config.head_dim == 128
    assert config.experts.score == "sigmoid" and config.experts.correction.groups == 1
    assert (config.experts.count, config.experts.chosen, config.experts.shared) == (256, 8, 0)


def test_glm_4_5_air() -> None:
    config = read(glm4_moe, GLM_4_5_AIR)
    assert config.sparse == (False,) + (True,) * 45 and config.ropes[0].rotary_dim == 64
    assert config.qkv_bias and not config.output_bias and not config.qk_norm
    assert (config.experts.count, config.experts.shared) == (128, 1408)
