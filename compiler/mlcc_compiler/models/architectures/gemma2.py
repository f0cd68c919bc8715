"""Gemma 2 (Riviere et al., 2024): soft caps, alternating windows, norms on both sides."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.architectures.gemma import causal_only
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
    windows_by_type,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, optional, positive, require
from mlcc_compiler.models.layers import Attention, GatedMLP, RMSNorm

DEFAULTS = DECODER_DEFAULTS | {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
"""Sizes too: a text_config inside a multimodal config.json is written without its defaults."""


class Layer(nn.Module):
    """x + norm(attention(norm(x))), then x + norm(mlp(norm(x)))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        def norm() -> RMSNorm:
            return RMSNorm(config.hidden_size, config.norm_eps, config.norm_offset)

        self.self_attn = Attention(config, layer)
        self.mlp = GatedMLP(config)
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = norm(), norm()

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), table)
        x = x + self.post_attention_layernorm(attended)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Gemma2ForCausalLM."""
    causal_only(hf, "Gemma 2")
    layers = require(hf, "num_hidden_layers")
    alternating = ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
    fields = gemma_fields(hf, "gemma2")
    fields["windows"] = windows_by_type(hf, layer_types(hf, alternating))
    return DecoderConfig(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        attention_softcap=optional(hf, "attn_logit_softcapping"),
        final_softcap=optional(hf, "final_logit_softcapping"),
    )


def gemma_fields(hf: HfConfig, architecture: str) -> dict[str, Any]:
    """Fields shared by Gemma 2 and 3: tied, scaled embeddings, norms of 1 + weight, their own
    scale."""
    bias = bool(hf.get("attention_bias", False))
    return common_fields(hf, architecture, "hidden_activation") | {
        "attention_scale": positive(hf, "query_pre_attn_scalar") ** -0.5,
        "norm_offset": 1.0,
        "embed_scale": require(hf, "hidden_size") ** 0.5,
        "qkv_bias": bias,
        "output_bias": bias,
    }
