"""`test_hub_configs` for architectures with states, and for those that route like DeepSeek V3."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.models.architectures import (
    deepseek_v3,
    granitemoehybrid,
    kimi_linear,
    lfm2,
    mamba2,
    nemotron_h,
)
from tests.compiler.models.hub.test_hub_configs import DEEPSEEK_V2_LITE, read

DEEPSEEK_V3: dict[str, Any] = {
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
        **DEEPSEEK_V2_LITE["rope_scaling"],
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
KIMI_LINEAR_48B_A3B: dict[str, Any] = {
    "model_type": "kimi_linear",
    "first_k_dense_replace": 1,
    "head_dim": 72,
    "hidden_act": "silu",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "kv_lora_rank": 512,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "head_dim": 128,
        "kda_layers": [i for i in range(1, 27) if i % 4],
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
    "mla_use_nope": True,
    "model_max_length": 1048576,
    "moe_intermediate_size": 1024,
    "moe_layer_freq": 1,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "num_attention_heads": 32,
    "num_expert_group": 1,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_hidden_layers": 27,
    "num_key_value_heads": 32,
    "num_nextn_predict_layers": 0,
    "num_shared_experts": 1,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "routed_scaling_factor": 2.446,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "use_grouped_topk": True,
    "v_head_dim": 128,
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


def test_kimi_linear() -> None:
    config = read(kimi_linear, KIMI_LINEAR_48B_A3B)
    assert [i for i, linear in enumerate(config.linear) if not linear] == [3, 7, 11, 15, 19, 23, 26]
    assert config.sparse == (False,) + (True,) * 26 and config.max_position == 1048576
    delta = config.delta
    assert (delta.v_heads, delta.k_dim, delta.speeds, config.taps) == (32, 128, 4096, 4)
    assert config.latent.width == 576 and config.latent.scale == 192**-0.5
    assert set(config.ropes[0].inv_freq) == {0.0} and config.ropes[0].rotary_dim == 64
    experts = config.experts
    assert (experts.count, experts.chosen, experts.shared) == (256, 8, 1024)
    assert (experts.score, experts.normalise, experts.scale) == ("sigmoid", True, 2.446)


@pytest.mark.parametrize(
    ("key", "value"),
    [("attn_res_block_size", 12), ("mla_use_output_gate", True), ("latent_moe_use_norm", True)],
)
def test_what_calls_itself_kimi_linear_and_is_kimi_k3_is_refused(key: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"'{key}' {value} is not supported"):
        read(kimi_linear, {**KIMI_LINEAR_48B_A3B, key: value})
    own = {**KIMI_LINEAR_48B_A3B["linear_attn_config"], "gate_lower_bound": -5.0}
    with pytest.raises(UnsupportedError, match=r"'gate_lower_bound' -5\.0"):
        read(kimi_linear, {**KIMI_LINEAR_48B_A3B, "linear_attn_config": own})


def test_lists_of_layers_that_leave_one_out_are_refused() -> None:
    own = {**KIMI_LINEAR_48B_A3B["linear_attn_config"], "full_attn_layers": [4, 8, 12, 16, 20, 24]}
    with pytest.raises(CheckpointError, match="'linear_attn_config' must be layers 1 to 27"):
        read(kimi_linear, {**KIMI_LINEAR_48B_A3B, "linear_attn_config": own})


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
