"""OLMo 3 (OLMo et al., 2025): OLMo 2 with three sliding layers, with unscaled rope, per
full-attention layer.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.models.architectures import olmo2
from mlcc_compiler.models.config import (
    DecoderConfig,
    rope_from_hf,
    rope_parameters,
    windows_by_type,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, require

Layer = olmo2.Layer

DEFAULTS = olmo2.DEFAULTS | {"sliding_window": 4096}
_THETA = 500000.0


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of an Olmo3ForCausalLM: rope scaling applies to full-attention layers only."""
    layers = require(hf, "num_hidden_layers")
    pattern = ["sliding_attention" if (i + 1) % 4 else "full_attention" for i in range(layers)]
    types = layer_types(hf, pattern)
    plain = hf if "sliding_attention" in rope_parameters(hf) else {**hf, "rope_scaling": None}
    ropes = tuple(
        rope_from_hf(source, context, layer_type=kind, default_theta=_THETA)
        for source, kind in ((hf, "full_attention"), (plain, "sliding_attention"))
    )
    return replace(
        olmo2.read_config(hf, context),
        architecture="olmo3",
        ropes=ropes,
        rope_of_layer=tuple(int(kind == "sliding_attention") for kind in types),
        windows=windows_by_type(hf, types),
    )
