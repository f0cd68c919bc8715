"""Configs of architectures with scans and short convolutions, for `checkpoints.CASES`."""

from __future__ import annotations

from typing import Any

from tests.compiler.models.helpers.mixture_cases import FIVE_EXPERTS

# A scan's first token gives (C . B) x, which is normalised: as with DELTA.
SCAN = {"layer_norm_epsilon": 1e-3}
GRANITE4 = {
    "rms_norm_eps": 1e-3,
    "num_local_experts": 0,
    "shared_intermediate_size": 96,
    "mamba_n_heads": 8,
    "mamba_d_state": 16,
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.6,
    "logits_scaling": 0.5,
}

FALCON = {
    "rms_norm_eps": 1e-3,
    "mamba_d_ssm": 96,
    "mamba_n_heads": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
}

NEMOTRON_H = {
    "head_dim": 32,
    "layer_norm_epsilon": 1e-3,
    "mamba_num_heads": 8,
    "mamba_head_dim": 12,
    "ssm_state_size": 16,
    "n_groups": 2,
}
# ranks and heads of several sizes; of the first layer's MLP, and a mixture with groups
KIMI = {
    "rms_norm_eps": 1e-3,
    "linear_head_dim": 16,
    "linear_num_heads": 3,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 20,
    "qk_rope_head_dim": 12,
    "v_head_dim": 28,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
}
HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba2": (
        "Mamba2Config",
        {**SCAN, "num_heads": 8, "head_dim": 16, "state_size": 24, "n_groups": 2},
    ),
    "mamba2-plain": (
        "Mamba2Config",
        {
            "num_heads": 4,
            "head_dim": 32,
            "state_size": 16,
            "n_groups": 1,
            "use_bias": True,
            "use_conv_bias": False,
            "time_step_limit": (0.5, 1.0),
        },
    ),
    "lfm2": (
        "Lfm2Config",
        {
            "layer_types": ["conv", "full_attention", "conv"],
            "num_hidden_layers": 3,
            "conv_bias": True,
            "block_multiple_of": 16,
        },
    ),
    "lfm2_moe": (
        "Lfm2MoeConfig",
        {
            "layer_types": ["conv", "full_attention", "conv"],
            "num_hidden_layers": 3,
            "num_dense_layers": 1,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "routed_scaling_factor": 1.5,
        },
    ),
    "granitemoehybrid": (
        "GraniteMoeHybridConfig",
        {
            **GRANITE4,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        },
    ),
    "granitemoehybrid-experts": (
        "GraniteMoeHybridConfig",
        {
            **GRANITE4,
            **FIVE_EXPERTS,
            "intermediate_size": 32,
            "layer_types": ["full_attention", "linear_attention"],
        },
    ),
    "granitemoehybrid-rope": (
        "GraniteMoeHybridConfig",
        {
            **GRANITE4,
            "position_embedding_type": "rope",
            "mamba_n_groups": 2,
            "attention_bias": True,
            "mamba_proj_bias": True,
            "mamba_conv_bias": False,
            "layer_types": ["full_attention", "linear_attention"],
        },
    ),
    "falcon_h1": (
        "FalconH1Config",
        {
            **FALCON,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "mlp_multipliers": [0.7, 1.3],
            "ssm_multipliers": [0.6, 1.2, 0.8, 1.1, 0.9],
            "ssm_in_multiplier": 1.4,
            "ssm_out_multiplier": 0.7,
            "attention_in_multiplier": 0.8,
            "attention_out_multiplier": 1.2,
            "key_multiplier": 0.5,
            "embedding_multiplier": 3.0,
            "lm_head_multiplier": 1.5,
        },
    ),
    "falcon_h1-plain": ("FalconH1Config", {**FALCON, "mamba_d_ssm": None, "projectors_bias": True}),
    "falcon_h1-norm": (
        "FalconH1Config",
        {**FALCON, "mamba_rms_norm": True, "mamba_n_groups": 1, "mamba_proj_bias": True},
    ),
    "kimi_linear": (
        "KimiLinearConfig",
        {
            **KIMI,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "n_group": 4,
            "topk_group": 2,
        },
    ),
    "nemotron_h-experts": (
        "NemotronHConfig",
        {
            **NEMOTRON_H,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 1.5,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 40,
            "moe_latent_size": 32,
        },
    ),
    "nemotron_h": (
        "NemotronHConfig",
        {
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"],
            **NEMOTRON_H,
            "time_step_min": 0.7,
            "use_bias": True,
            "mlp_bias": True,
        },
    ),
}
