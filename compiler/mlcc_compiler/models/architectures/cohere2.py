"""Command R7B and A (Cohere, 2025): attention and MLP in parallel after one LayerNorm; three
sliding layers per full-attention layer, which uses no positions.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
    windows_by_type,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, positive, require
from mlcc_compiler.models.layers import Attention, GatedMLP, hidden_norm

DEFAULTS = {
    **DECODER_DEFAULTS,
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.0625,
    "max_position_embeddings": 8192,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
    "tie_word_embeddings": True,
}
del DEFAULTS["rms_norm_eps"]


class Layer(nn.Module):
    """x + attention(norm(x)) + mlp(norm(x))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.self_attn, self.mlp = Attention(config, layer), GatedMLP(config)
        self.input_layernorm = hidden_norm(config)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        normed = self.input_layernorm(x)
        return x + self.self_attn(normed, table) + self.mlp(normed)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Cohere2ForCausalLM."""
    hf = {**hf, "rms_norm_eps": hf["layer_norm_eps"]}
    layers, every = require(hf, "num_hidden_layers"), require(hf, "sliding_window_pattern")
    pattern = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(layers)]
    types = layer_types(hf, pattern)
    fields = common_fields(hf, "cohere2") | {"windows": windows_by_type(hf, types)}
    slides = hf["sliding_window"] is not None
    fields["rope_of_layer"] = tuple(
        0 if slides and kind == "sliding_attention" else None for kind in types
    )
    bias = bool(hf.get("attention_bias", False))
    return DecoderConfig(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        rope_pairs=True,
        layer_norm=True,
        logit_scale=positive(hf, "logit_scale"),
        qkv_bias=bias,
        output_bias=bias,
    )
