"""Mistral 7B and kin (Jiang et al., 2023): Llama with a sliding window on every layer."""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.models.architectures import llama
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, window_of

Layer = llama.Layer

DEFAULTS = llama.DEFAULTS | {
    "max_position_embeddings": 131072,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a MistralForCausalLM; a null `sliding_window` means full attention."""
    config = llama.read_config(hf, context)
    windows = (window_of(hf),) * config.num_layers
    return replace(config, architecture="mistral", windows=windows)
