"""Gemma 1 (Mesnard et al., 2024): Llama with scaled embeddings and norms of 1 + weight."""

from __future__ import annotations

from mlcc.errors import UnsupportedError
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig, require
from mlcc_compiler.models.layers import PreNormLayer

Layer = PreNormLayer

DEFAULTS = DECODER_DEFAULTS | {
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "num_key_value_heads": 16,
    "tie_word_embeddings": True,
}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a GemmaForCausalLM; the first ones say "gelu" for its tanh form."""
    causal_only(hf, "Gemma 1")
    fields = common_fields(hf, "gemma")
    if fields["activation"] == "gelu":
        fields["activation"] = "gelu_tanh"
    bias = bool(hf.get("attention_bias", False))
    return DecoderConfig(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        norm_offset=1.0,
        embed_scale=require(hf, "hidden_size") ** 0.5,
        qkv_bias=bias,
        output_bias=bias,
    )


def causal_only(hf: HfConfig, name: str) -> None:
    """Raises UnsupportedError for an encoder."""
    if hf.get("use_bidirectional_attention"):
        raise UnsupportedError(
            f"config.json: 'use_bidirectional_attention' makes an encoder of {name}, which is not "
            "supported; EmbeddingGemma (Gemma 3) is"
        )
