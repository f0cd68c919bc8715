"""Qwen3 dense (Yang et al., 2025): an RMS norm on each head's queries and keys."""

from __future__ import annotations

from mlcc_compiler.models.architectures import qwen2
from mlcc_compiler.models.config import DecoderConfig, common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import PreNormLayer

Layer = PreNormLayer

DEFAULTS = qwen2.DEFAULTS | {"head_dim": 128}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Qwen3ForCausalLM."""
    fields = common_fields(hf, "qwen3") | {"windows": qwen2.qwen_windows(hf)}
    bias = bool(hf.get("attention_bias", False))
    return DecoderConfig(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
    )
