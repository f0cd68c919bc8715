"""The newest architectures as their repositories on the hub spell them: real sizes and fields, of
which `transformers`, whose own config.json the other tests read, renames some and drops others."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from mlcc_compiler.models import (
    deepseek_v2,
    deepseek_v3,
    granitemoehybrid,
    lfm2,
    mamba2,
    nemotron_h,
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
DEEPSEEK_V2_LITE = {
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

DEEPSEEK_V3 = {
    **DEEPSEEK_V2_LITE,
    "model_type": "deepseek_v3",
    "ep_size": 1,
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "rope_scaling": {
        **DEEPSEEK_V2_LITE["rope_scaling"],  # type: ignore[dict-item]
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "vocab_size": 129280,
}
KIMI_K2 = {
    **DEEPSEEK_V3,
    "model_type": "kimi_k2",
    "first_k_dense_replace": 1,
    "max_position_embeddings": 131072,
    "n_group": 1,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "num_nextn_predict_layers": 0,
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.827,
    "topk_group": 1,
    "vocab_size": 163840,
}
MAMBA_CODESTRAL = {
    "model_type": "mamba2",
    "chunk_size": 256,
    "conv_kernel": 4,
    "expand": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "layer_norm_epsilon": 1e-05,
    "n_groups": 8,
    "norm_before_gate": True,
    "num_heads": 128,
    "num_hidden_layers": 64,
    "residual_in_fp32": True,
    "rms_norm": True,
    "state_size": 128,
    "tie_word_embeddings": False,
    "time_step_limit": [0.0, float("inf")],
    "use_bias": False,
    "use_conv_bias": True,
    "vocab_size": 32768,
}
LFM2_1_2B = {
    "model_type": "lfm2",
    "block_auto_adjust_ff_dim": True,
    "block_dim": 2048,
    "block_ff_dim": 12288,
    "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256,
    "conv_L_cache": 3,
    "conv_bias": False,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "hidden_size": 2048,
    "max_position_embeddings": 128000,
    "norm_eps": 1e-05,
    "num_attention_heads": 32,
    "num_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rope_theta": 1000000.0,
    "vocab_size": 65536,
}
GRANITE_4_H_TINY = {
    "model_type": "granitemoehybrid",
    "attention_bias": False,
    "attention_multiplier": 0.0078125,
    "embedding_multiplier": 12,
    "hidden_act": "silu",
    "hidden_size": 1536,
    "intermediate_size": 512,
    "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
    "logits_scaling": 6,
    "mamba_chunk_size": 256,
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 48,
    "mamba_proj_bias": False,
    "max_position_embeddings": 131072,
    "normalization_function": "rmsnorm",
    "num_attention_heads": 12,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 40,
    "num_key_value_heads": 4,
    "num_local_experts": 64,
    "position_embedding_type": "nope",
    "residual_multiplier": 0.22,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000,
    "shared_intermediate_size": 1024,
    "tie_word_embeddings": True,
    "vocab_size": 100352,
}
NEMOTRON_NANO_9B_V2 = {
    "model_type": "nemotron_h",
    "attention_bias": False,
    "attention_head_dim": 128,
    "chunk_size": 128,
    "conv_kernel": 4,
    "expand": 2,
    "head_dim": 128,
    "hidden_size": 4480,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "intermediate_size": 15680,
    "layer_norm_epsilon": 1e-05,
    "mamba_head_dim": 80,
    "mamba_hidden_act": "silu",
    "mamba_num_heads": 128,
    "mamba_proj_bias": False,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "mlp_hidden_act": "relu2",
    "n_groups": 8,
    "num_attention_heads": 40,
    "num_hidden_layers": 56,
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
    "time_step_limit": [0.0, float("inf")],
    "time_step_min": 0.001,
    "use_bias": False,
    "use_conv_bias": True,
    "vocab_size": 131072,
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


def test_deepseek_v3_and_kimi_k2() -> None:
    config = read(deepseek_v3, DEEPSEEK_V3)
    experts = config.experts
    assert (experts.count, experts.chosen, experts.shared) == (256, 8, 2048)
    assert (experts.score, experts.normalise, experts.scale) == ("sigmoid", True, 2.5)
    assert (experts.correction.groups, experts.correction.kept) == (8, 4)
    assert config.dense_layers == 3 and config.query_rank == 1536
    assert config.latent.scale == pytest.approx(192**-0.5 * (0.1 * log(40) + 1) ** 2)
    assert config.ignored == (r"^model\.layers\.61\.",)
    config = read(deepseek_v3, KIMI_K2)
    assert (config.architecture, config.latent.heads) == ("kimi_k2", 64)
    assert (config.experts.count, config.experts.correction.groups) == (384, 1)


def test_mamba_codestral() -> None:
    config = read(mamba2, MAMBA_CODESTRAL)
    scan = config.mamba.scan
    assert (scan.heads, scan.head_dim, scan.groups, scan.state) == (128, 64, 8, 128)
    assert (scan.shortest, scan.longest) == (0.0, None) and scan.channels == 8192 + 2048
    assert config.ropes == () and config.mamba.norm_groups == 8


def test_lfm2() -> None:
    config = read(lfm2, LFM2_1_2B)
    assert config.intermediate_size == 8192 and config.tie_embeddings and config.head_dim == 64
    assert [i for i, short in enumerate(config.short) if not short] == [2, 5, 8, 10, 12, 14]
    assert config.conv.taps == 3 and config.conv.channels == 2048


def test_granite_4() -> None:
    config = read(granitemoehybrid, GRANITE_4_H_TINY)
    assert config.scans.count(False) == 4 and config.ropes == ()
    assert config.mamba.scan.inner == 3072 and config.intermediate_size == 1024
    assert (config.experts.count, config.experts.chosen, config.experts.inner) == (64, 6, 512)


def test_nemotron_nano() -> None:
    config = read(nemotron_h, NEMOTRON_NANO_9B_V2)
    assert len(config.kinds) == 56 and config.kinds.count("attention") == 4
    assert config.mamba.scan.inner == 10240 and config.mamba.scan.shortest == 0.001
    assert config.activation == "relu2"
