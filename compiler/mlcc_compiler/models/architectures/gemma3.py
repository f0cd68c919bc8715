"""Gemma 3, text (Gemma Team, 2025): q/k norms, five sliding layers to one, a local rope base."""

from __future__ import annotations

from mlcc_compiler.models.architectures import gemma2
from mlcc_compiler.models.config import (
    DecoderConfig,
    rope_from_hf,
    rope_parameters,
    windows_by_type,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, optional, require
from mlcc_compiler.models.rope import Rope

Layer = gemma2.Layer
EAGLE_HEADS = True
"""Whether EAGLE-3 heads are read for it; it has no layer of its own that drafts."""

DEFAULTS = gemma2.DEFAULTS | {
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "sliding_window_pattern": 6,
}


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json (or its `text_config`) of a Gemma3ForCausalLM, or of EmbeddingGemma, which is
    bidirectional."""
    layers, every = require(hf, "num_hidden_layers"), require(hf, "sliding_window_pattern")
    pattern = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(layers)]
    types = layer_types(hf, pattern)
    fields = gemma2.gemma_fields(hf, "gemma3")
    causal = not hf.get("use_bidirectional_attention")
    fields["windows"] = windows_by_type(hf, types)
    if not causal:  # half of it on either side
        fields["windows"] = tuple(w and w // 2 + 1 for w in fields["windows"])
    fields["rope_of_layer"] = tuple(int(kind == "sliding_attention") for kind in types)
    return DecoderConfig(
        **fields,
        ropes=(global_rope(hf, context), local_rope(hf, context)),
        qk_norm=True,
        images_both_ways=causal,
        causal=causal,
        attention_softcap=optional(hf, "attn_logit_softcapping"),
        final_softcap=optional(hf, "final_logit_softcapping"),
    )


def global_rope(hf: HfConfig, context: int) -> Rope:
    """The rope of full-attention layers."""
    return rope_from_hf(hf, context, layer_type="full_attention", default_theta=1e6)


def local_rope(hf: HfConfig, context: int) -> Rope:
    """Sliding layers keep the short base and are never scaled."""
    new_style = rope_parameters(hf).get("sliding_attention") or {}
    theta = new_style.get("rope_theta") or hf.get("rope_local_base_freq") or 1e4
    plain = {"rope_type": "default", "rope_theta": theta, **new_style}
    stripped = {k: v for k, v in hf.items() if k not in ("rope_scaling", "rope_parameters")}
    return rope_from_hf(stripped, context, overrides=plain)
