"""Gemma 3, text (Gemma Team, 2025): q/k norms, five sliding layers to one, a local rope base."""

from __future__ import annotations

from mlcc.errors import UnsupportedError
from mlcc_compiler.models import gemma2
from mlcc_compiler.models.config import (
    DecoderConfig,
    HfConfig,
    rope_from_hf,
    windows_from_layer_types,
)
from mlcc_compiler.models.rope import Rope

Layer = gemma2.Layer

DEFAULTS = gemma2.DEFAULTS | {
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json (or its `text_config`) of a Gemma3ForCausalLM."""
    if hf.get("use_bidirectional_attention"):
        raise UnsupportedError(
            "Gemma 3 with bidirectional attention is an encoder, not a chat model"
        )
    layers, every = int(hf["num_hidden_layers"]), int(hf.get("sliding_window_pattern", 6))
    pattern = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(layers)]
    windows = tuple(windows_from_layer_types(hf, hf["sliding_window"], pattern))
    fields = gemma2.gemma_fields(hf, "gemma3")
    fields |= {"windows": windows, "rope_of_layer": tuple(int(w is not None) for w in windows)}
    return DecoderConfig(
        **fields,
        ropes=(_global_rope(hf, context), _local_rope(hf, context)),
        qk_norm=True,
        attention_softcap=hf["attn_logit_softcapping"],
        final_softcap=hf["final_logit_softcapping"],
    )


def _global_rope(hf: HfConfig, context: int) -> Rope:
    return rope_from_hf(hf, context, layer_type="full_attention", default_theta=1e6)


def _local_rope(hf: HfConfig, context: int) -> Rope:
    """Sliding layers keep the short base and are never scaled."""
    new_style = (hf.get("rope_parameters") or {}).get("sliding_attention")
    theta = (new_style or {}).get("rope_theta") or hf.get("rope_local_base_freq") or 1e4
    plain = {"rope_type": "default", "rope_theta": theta, **(new_style or {})}
    stripped = {k: v for k, v in hf.items() if k not in ("rope_scaling", "rope_parameters")}
    return rope_from_hf(stripped, context, overrides=plain)
