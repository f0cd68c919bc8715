"""gpt-oss (OpenAI, 2025): every layer a mixture with biases and a clamped SwiGLU, attention with a
learned sink for each head (Xiao et al., 2024), every second layer with a window.

Its experts are published as MXFP4, which is kept; `checkpoint/name_maps.py` has their names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures import mixtral
from mlcc_compiler.models.architectures.mixtral import Config
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    common_fields,
    rope_from_hf,
    rope_parameters,
    windows_by_type,
    with_rope,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, positive, require
from mlcc_compiler.models.layers import Attention
from mlcc_compiler.models.moe import Experts, chosen_of, count_of

EAGLE_HEADS = True
"""Whether EAGLE-3 heads are read for it; it has no layer of its own that drafts."""
DEFAULTS = DECODER_DEFAULTS | {
    "attention_bias": True,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "num_experts_per_tok": 4,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
    "rms_norm_eps": 1e-5,
    "sliding_window": 128,
    "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0,
}
ALIASES = {"num_experts": "num_local_experts"}
"""Other names of fields, which overrule them as in transformers."""
_ROPE: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""Rope of a config.json without `rope_parameters`."""


class SinkAttention(Attention):
    """Attention with an additional sink score in each head's softmax."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.sinks = nn.Parameter((config.num_heads,), "float32")

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        shape = replace(self.config.attention(self.layer), sinks=True)
        return ops.attention(q, k, v, self.layer, shape, self.sinks)


class Layer(mixtral.Layer):
    """Mixtral's layer with that attention."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.self_attn = SinkAttention(config, layer)


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a GptOssForCausalLM; `hidden_act` is ignored."""
    fields = common_fields({**hf, "hidden_act": "silu"}, "gpt_oss")
    layers, bias = fields["num_layers"], bool(hf["attention_bias"])
    count = count_of(hf, "num_local_experts")
    pattern = ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]
    rope = with_rope(hf, rope_parameters(hf) or _ROPE)
    return Config(
        **fields | {"windows": windows_by_type(hf, layer_types(hf, pattern))},
        ropes=(rope_from_hf(rope, context, default_theta=150000.0),),
        qkv_bias=bias,
        output_bias=bias,
        experts=Experts(
            count=count,
            chosen=chosen_of(hf, count),
            inner=require(hf, "intermediate_size"),
            normalise=True,
            router_bias=True,
            biased=True,
            clamped=(positive(hf, "swiglu_alpha"), positive(hf, "swiglu_limit")),
        ),
    )
