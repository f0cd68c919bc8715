"""EXAONE 4 (LG AI Research, 2025): norms after attention and MLP and of each head's queries and
keys; three sliding layers per full-attention layer, which uses no positions.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
    windows_by_type,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, refuse, require
from mlcc_compiler.models.layers import Attention, PostNormLayer

DEFAULTS = DECODER_DEFAULTS | {
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-5,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
}


class Layer(PostNormLayer):
    """x + norm(attention(x)), then x + norm(mlp(x))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, Attention(config, layer))


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of an Exaone4ForCausalLM; without a window all layers use rope."""
    fields = common_fields(hf, "exaone4")
    slides = hf["sliding_window"] is not None
    types = layer_types(hf, _pattern(hf, fields["num_layers"]) if slides else _full(fields))
    fields["windows"] = windows_by_type(hf, types)
    fields["rope_of_layer"] = tuple(
        0 if kind == "sliding_attention" or not slides else None for kind in types
    )
    return DecoderConfig(**fields, ropes=(rope_from_hf(hf, context),), qk_norm=True)


def _full(fields: dict[str, Any]) -> list[str]:
    return ["full_attention"] * fields["num_layers"]


def _pattern(hf: HfConfig, layers: int) -> list[str]:
    """By "LLLG", local and global layers in turn, or by which are global: every so many."""
    pattern = hf["sliding_window_pattern"]
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        local = [pattern[i % len(pattern)] == "L" for i in range(layers)]
    elif isinstance(pattern, str):
        raise refuse("sliding_window_pattern", 'a number or a text of "L" and "G"', pattern)
    else:
        every = require(hf, "sliding_window_pattern")
        local = [(i + 1) % every != 0 for i in range(layers)]
    return ["sliding_attention" if each else "full_attention" for each in local]
