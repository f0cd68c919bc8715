"""Llama 2, 3 and 3.x (Touvron et al., 2023; Dubey et al., 2024), and models of the same
structure.
"""

from __future__ import annotations

from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    Mtp,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import PreNormLayer

Layer, MTP = PreNormLayer, Mtp(normed=True)

DEFAULTS = DECODER_DEFAULTS


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a LlamaForCausalLM, compiled for sequences of up to `context` tokens."""
    bias = bool(hf.get("attention_bias", False))
    return DecoderConfig(
        **common_fields(hf, "llama"),
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(hf.get("mlp_bias", False)),
    )
