"""SmolLM3 (Hugging Face, 2025): Llama whose every fourth layer has no positions."""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.models.architectures import llama
from mlcc_compiler.models.config import DecoderConfig, rope_from_hf, windows_by_type
from mlcc_compiler.models.fields import HfConfig, layer_types, refuse, require

Layer = llama.Layer

DEFAULTS = llama.DEFAULTS | {
    "max_position_embeddings": 32768,
    "num_key_value_heads": 4,
    "no_rope_layer_interval": 4,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a SmolLM3ForCausalLM; sliding layers are those without rope, if enabled, or
    those named by `layer_types`."""
    layers = require(hf, "num_hidden_layers")
    turned = _rope_layers(hf, layers)
    slides = bool(hf["use_sliding_window"]) and hf["sliding_window"] is not None
    default = ["sliding_attention" if slides and not rope else "full_attention" for rope in turned]
    types = layer_types(hf, default)
    return replace(
        llama.read_config(hf, context),
        architecture="smollm3",
        ropes=(rope_from_hf(hf, context, default_theta=2e6),),
        rope_of_layer=tuple(0 if rope else None for rope in turned),
        windows=windows_by_type(hf, types),
    )


def _rope_layers(hf: HfConfig, layers: int) -> list[bool]:
    """Which layers use rope: `no_rope_layers` has a 1 for them."""
    given = hf.get("no_rope_layers")
    if given is None:
        every = require(hf, "no_rope_layer_interval")
        return [(i + 1) % every != 0 for i in range(layers)]
    if not isinstance(given, list) or len(given) < layers or any(v not in (0, 1) for v in given):
        raise refuse("no_rope_layers", f"a list of 0 and 1 for {layers} layers", given)
    return [bool(value) for value in given[:layers]]
