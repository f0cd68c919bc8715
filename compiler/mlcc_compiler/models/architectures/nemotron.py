"""Nemotron-4 and Minitron (NVIDIA, 2024): LayerNorms of 1 + weight, a squared ReLU without a gate,
rope in half of each head.
"""

from __future__ import annotations

from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import PlainMLP, PreNormLayer

DEFAULTS = {
    **DECODER_DEFAULTS,
    "hidden_act": "relu2",
    "max_position_embeddings": 4096,
    "norm_eps": 1e-5,
    "partial_rotary_factor": 0.5,
}
del DEFAULTS["rms_norm_eps"]


class Layer(PreNormLayer):
    """The usual pre-norm layer with the plain MLP."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.mlp = PlainMLP(config)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a NemotronForCausalLM."""
    hf = {**hf, "rms_norm_eps": hf["norm_eps"]}
    bias = bool(hf.get("attention_bias", False))
    return DecoderConfig(
        **common_fields(hf, "nemotron"),
        ropes=(rope_from_hf(hf, context),),
        layer_norm=True,
        norm_bias=True,
        norm_offset=1.0,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(hf.get("mlp_bias", False)),
    )
