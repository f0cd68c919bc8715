"""Granite 3 dense (IBM, 2024): Llama with four multipliers (Yang et al., 2022: muP)."""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.models.architectures import llama
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, positive

Layer = llama.Layer

DEFAULTS = llama.DEFAULTS | {
    "attention_multiplier": 1.0,
    "embedding_multiplier": 1.0,
    "logits_scaling": 1.0,
    "residual_multiplier": 1.0,
}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a GraniteForCausalLM; logits are divided by `logits_scaling`."""
    return replace(
        llama.read_config(hf, context),
        architecture="granite",
        attention_scale=positive(hf, "attention_multiplier"),
        embed_scale=positive(hf, "embedding_multiplier"),
        residual_scale=positive(hf, "residual_multiplier"),
        logit_scale=1 / positive(hf, "logits_scaling"),
    )
