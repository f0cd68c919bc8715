"""OLMo 2 (OLMo et al., 2024): norms after attention and MLP, and of all queries and keys."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import Tensor
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import Attention, PostNormLayer, RMSNorm

DEFAULTS = DECODER_DEFAULTS | {"rms_norm_eps": 1e-5}


class NormedAttention(Attention):
    """Attention with one norm over the queries of all heads, and one over the keys."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.q_norm = RMSNorm(config.num_heads * config.head_dim, config.norm_eps)
        self.k_norm = RMSNorm(config.num_kv_heads * config.head_dim, config.norm_eps)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x)
        return self.q_norm(q), self.k_norm(k), v


class Layer(PostNormLayer):
    """x + norm(attention(x)), then x + norm(mlp(x))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, NormedAttention(config, layer))


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of an Olmo2ForCausalLM."""
    bias = bool(hf.get("attention_bias", False))
    return DecoderConfig(
        **common_fields(hf, "olmo2"),
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
    )
