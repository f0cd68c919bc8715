"""Qwen2 with experts (Yang et al., 2024): Qwen2 whose MLPs are mixtures, with a gated shared
expert.
"""

from __future__ import annotations

from mlcc_compiler.models.architectures import qwen3_moe
from mlcc_compiler.models.architectures.qwen3_moe import Config
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    common_fields,
    rope_from_hf,
    windows_by_type,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, require
from mlcc_compiler.models.moe import Experts, chosen_of, count_of

Layer = qwen3_moe.Layer

DEFAULTS = DECODER_DEFAULTS | {
    "decoder_sparse_step": 1,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "mlp_only_layers": None,
    "moe_intermediate_size": 1408,
    "norm_topk_prob": False,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "num_key_value_heads": 16,
    "qkv_bias": True,
    "shared_expert_intermediate_size": 5632,
    "sliding_window": 4096,
    "use_sliding_window": False,
}


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a Qwen2MoeForCausalLM."""
    fields = common_fields(hf, "qwen2_moe")
    count = count_of(hf, "num_experts")
    if hf["use_sliding_window"]:
        fields["windows"] = windows_by_type(hf, _types(hf, fields["num_layers"]))
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bool(hf["qkv_bias"]),
        sparse=qwen3_moe.sparse_layers(hf, fields["num_layers"]),
        experts=Experts(
            count=count,
            chosen=chosen_of(hf, count),
            inner=require(hf, "moe_intermediate_size"),
            normalise=bool(hf["norm_topk_prob"]),
            shared=require(hf, "shared_expert_intermediate_size"),
            shared_gate=True,
        ),
    )


def _types(hf: HfConfig, layers: int) -> list[str]:
    """Every second of the first `max_window_layers` slides."""
    first = hf["max_window_layers"]
    slide = [i % 2 == 0 and i < first for i in range(layers)]
    default = ["sliding_attention" if s else "full_attention" for s in slide]
    return list(layer_types(hf, default))
