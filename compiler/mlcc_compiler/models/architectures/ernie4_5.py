"""ERNIE 4.5 dense (Baidu, 2025): Llama with rope of neighbouring pairs."""

from __future__ import annotations

from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import PreNormLayer

Layer = PreNormLayer

DEFAULTS = DECODER_DEFAULTS | {
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "use_bias": False,
}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of an Ernie4_5ForCausalLM; `use_bias` is for every projection."""
    bias = bool(hf["use_bias"])
    return DecoderConfig(
        **common_fields(hf, "ernie4_5"),
        ropes=(rope_from_hf(hf, context, default_theta=500000.0),),
        rope_pairs=True,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
    )
