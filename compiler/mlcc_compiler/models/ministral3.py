"""Ministral 3 (Mistral AI, 2025), the text of Mistral 3 too: Mistral with YaRN, whose queries grow
with their position beyond the length it was first trained for."""

from __future__ import annotations

from dataclasses import replace

from mlcc.errors import UnsupportedError
from mlcc_compiler.models import mistral
from mlcc_compiler.models.config import DecoderConfig, rope_parameters
from mlcc_compiler.models.fields import HfConfig, optional

Layer = mistral.Layer

DEFAULTS = mistral.DEFAULTS | {
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
}
_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
"""Of a config.json that has no `rope_parameters`."""


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Ministral3ForCausalLM. Raises UnsupportedError for a longer context than
    that up to which a query's size is the same everywhere."""
    given = rope_parameters(hf) or _ROPE
    original = optional(given, "original_max_position_embeddings")
    grows = original is not None and optional(given, "llama_4_scaling_beta") is not None
    if grows and original is not None and context > original:
        raise UnsupportedError(
            f"queries that grow with their position ('llama_4_scaling_beta') are not built, and "
            f"they do beyond {original:.0f} tokens; use --context {original:.0f}"
        )
    hf = {**hf, "rope_parameters": given}
    return replace(mistral.read_config(hf, context), architecture="ministral3")
