"""GLM-4 of 2024 (GLM et al., 2024): Llama with rope of neighbouring pairs in half of each head."""

from __future__ import annotations

from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import FusedMLP, PreNormLayer

DEFAULTS = DECODER_DEFAULTS | {
    "attention_bias": True,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1.5625e-07,
}


class Layer(PreNormLayer):
    """The usual pre-norm layer with the fused MLP."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.mlp = FusedMLP(config)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a GlmForCausalLM."""
    return DecoderConfig(
        **common_fields(hf, "glm"),
        ropes=(rope_from_hf(hf, context),),
        rope_pairs=True,
        qkv_bias=bool(hf["attention_bias"]),
    )
