"""Ministral 3 (Mistral AI, 2025), the text of Mistral 3 too: Mistral with YaRN, whose queries are
scaled by position beyond the original training length.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.models.architectures import mistral
from mlcc_compiler.models.config import DecoderConfig, growth_of, rope_parameters, with_rope
from mlcc_compiler.models.fields import HfConfig

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
"""Rope of a config.json without `rope_parameters`."""


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Ministral3ForCausalLM."""
    hf = with_rope(hf, rope_parameters(hf) or _ROPE)
    config = mistral.read_config(hf, context)
    return replace(config, architecture="ministral3", growth=growth_of(hf, context))
