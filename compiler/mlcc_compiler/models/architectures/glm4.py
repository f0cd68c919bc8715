"""GLM-4-0414 (Zhipu AI, 2025): GLM-4 with norms on both sides of attention and MLP."""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.architectures import glm
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import Attention, FusedMLP, hidden_norm

DEFAULTS = glm.DEFAULTS


class Layer(nn.Module):
    """x + norm(attention(norm(x))), then x + norm(mlp(norm(x)))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.self_attn = Attention(config, layer)
        self.mlp = FusedMLP(config)
        self.input_layernorm, self.post_self_attn_layernorm = (
            hidden_norm(config),
            hidden_norm(config),
        )
        self.post_attention_layernorm, self.post_mlp_layernorm = (
            hidden_norm(config),
            hidden_norm(config),
        )

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), table)
        x = x + self.post_self_attn_layernorm(attended)
        return x + self.post_mlp_layernorm(self.mlp(self.post_attention_layernorm(x)))


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Glm4ForCausalLM."""
    return replace(glm.read_config(hf, context), architecture="glm4")
