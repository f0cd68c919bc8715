"""Small configs of mixtures of experts, for `checkpoints.py`.

Qwen3-MoE, Qwen3-Next and DeepSeek V2 are in `checkpoints.py`, as they differ in more than their
mixtures.
"""

from __future__ import annotations

from typing import Any

GRANITE = {
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.6,
    "logits_scaling": 0.5,
}
FIVE_EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 32}
LLAMA4_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
}
"""Scout's: nothing is between long and short waves."""
ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "truncate": False,
}

MIXTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("MixtralConfig", FIVE_EXPERTS),
    "mixtral-window": (
        "MixtralConfig",
        {"num_local_experts": 3, "sliding_window": 9, "head_dim": 24},
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        {
            "num_hidden_layers": 3,
            "num_experts": 7,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 128,
            "mlp_only_layers": [1],
            "use_sliding_window": True,
            "sliding_window": 9,
        },
    ),
    "olmoe": (
        "OlmoeConfig",
        {"num_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 32},
    ),
    "gpt_oss": (
        "GptOssConfig",
        {
            **FIVE_EXPERTS,
            "head_dim": 32,
            "sliding_window": 9,
            "swiglu_limit": 1.5,
            "rope_parameters": ROPE,
        },
    ),
    "llama4_text": (
        "Llama4TextConfig",
        {
            **FIVE_EXPERTS,
            "num_hidden_layers": 3,
            "num_experts_per_tok": 1,
            "intermediate_size_mlp": 96,
            "head_dim": 32,
            "moe_layers": [0, 2],
            "no_rope_layers": [1, 0, 1],
            "rope_parameters": LLAMA4_ROPE,
        },
    ),
    "granitemoe": ("GraniteMoeConfig", {**GRANITE, **FIVE_EXPERTS}),
    "granitemoeshared": (
        "GraniteMoeSharedConfig",
        {**GRANITE, **FIVE_EXPERTS, "shared_intermediate_size": 48},
    ),
    "glm4_moe": (
        "Glm4MoeConfig",
        {
            "head_dim": 32,
            "attention_bias": True,
            "use_qk_norm": True,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "n_group": 4,
            "topk_group": 2,
            "moe_intermediate_size": 32,
            "routed_scaling_factor": 1.5,
        },
    ),
    "ernie4_5_moe": (
        "Ernie4_5_MoeConfig",
        {
            "num_hidden_layers": 3,
            "moe_num_experts": 6,
            "moe_k": 3,
            "moe_intermediate_size": 32,
            "moe_layer_end_index": 1,
            "tie_word_embeddings": True,
        },
    ),
    "minimax_m2": (
        "MiniMaxM2Config",
        {**FIVE_EXPERTS, "head_dim": 32, "rotary_dim": 16},
    ),
}
