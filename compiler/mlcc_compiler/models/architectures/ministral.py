"""Ministral (Mistral AI, 2024): Llama with sliding layers named by `layer_types`."""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.models.architectures import llama
from mlcc_compiler.models.config import DecoderConfig, windows_by_type
from mlcc_compiler.models.fields import HfConfig, layer_types, require

Layer = llama.Layer

DEFAULTS = llama.DEFAULTS | {
    "max_position_embeddings": 131072,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a MinistralForCausalLM: all layers slide by default."""
    types = layer_types(hf, ["sliding_attention"] * require(hf, "num_hidden_layers"))
    return replace(
        llama.read_config(hf, context),
        architecture="ministral",
        windows=windows_by_type(hf, types),
    )
