"""Phi-3 and Phi-4-mini (Abdin et al., 2024): fused projections, LongRoPE."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
    rope_parameters,
)
from mlcc_compiler.models.fields import HfConfig, window_of
from mlcc_compiler.models.layers import Attention, FusedMLP, Linear, PreNormLayer

DEFAULTS = DECODER_DEFAULTS | {
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
}


class FusedAttention(Attention):
    """q, k and v from one matrix."""

    def _projections(self, config: DecoderConfig) -> None:
        self.widths = [
            heads * config.head_dim
            for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        ]
        self.qkv_proj = Linear(config.hidden_size, sum(self.widths))
        self.o_proj = Linear(self.widths[0], config.hidden_size)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, _ = self.widths
        q, k, v = nn.op.split(self.qkv_proj(x), [queries, queries + keys], axis=1)
        return q, k, v


class Layer(PreNormLayer):
    """The usual pre-norm layer around the fused parts."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.self_attn = FusedAttention(config, layer)
        self.mlp = FusedMLP(config)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Phi3ForCausalLM; `su` and `yarn` there always meant LongRoPE."""
    parameters = rope_parameters(hf)
    kind = parameters.get("rope_type") or parameters.get("type")
    overrides = {"rope_type": "longrope"} if kind in ("su", "yarn") else {}
    fields = common_fields(hf, "phi3")
    fields["windows"] = (window_of(hf),) * fields["num_layers"]
    return DecoderConfig(**fields, ropes=(rope_from_hf(hf, context, overrides=overrides),))
