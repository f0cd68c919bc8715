"""HunYuan dense (Tencent, 2025): Llama with norms of each head's queries and keys after
rotation.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import Tensor
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    head_dim_of,
    rope_from_hf,
    rope_parameters,
)
from mlcc_compiler.models.fields import HfConfig, optional, positive
from mlcc_compiler.models.layers import Attention, PreNormLayer, RMSNorm

DEFAULTS = DECODER_DEFAULTS | {"rms_norm_eps": 1e-5}


class RotateThenNorm(Attention):
    """Attention whose queries and keys are rotated before they are normalised."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.query_layernorm = RMSNorm(config.head_dim, config.norm_eps)
        self.key_layernorm = RMSNorm(config.head_dim, config.norm_eps)

    def rotate(self, q: Tensor, k: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.query_layernorm(self.apply_rope(q, table)), self.key_layernorm(
            self.apply_rope(k, table)
        )


class Layer(PreNormLayer):
    """The usual pre-norm layer with that attention."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.self_attn = RotateThenNorm(config, layer)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a HunYuanDenseV1ForCausalLM."""
    bias = bool(hf.get("attention_bias", False))
    return DecoderConfig(
        **common_fields(hf, "hunyuan_v1_dense"),
        ropes=(rope_from_hf(hf, context, overrides=_alpha_base(hf)),),
        qkv_bias=bias,
        output_bias=bias,
    )


def _alpha_base(hf: HfConfig) -> dict[str, Any]:
    """Rope type "dynamic" with an `alpha` is a fixed longer base here."""
    given = rope_parameters(hf)
    kind = given.get("rope_type") or given.get("type")
    if kind != "dynamic" or not given.get("alpha"):
        return {}
    theta = optional(given, "rope_theta") or optional(hf, "rope_theta") or 10000.0
    width = head_dim_of(hf)
    base = theta * positive(given, "alpha") ** (width / (width - 2))
    return {"rope_type": "default", "rope_theta": base}
