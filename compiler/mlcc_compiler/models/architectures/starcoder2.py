"""StarCoder 2 (Lozhkov et al., 2024): LayerNorms and an MLP without a gate, biases everywhere."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig, window_of
from mlcc_compiler.models.layers import Linear, PreNormLayer

DEFAULTS = {
    **DECODER_DEFAULTS,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 4096,
    "norm_epsilon": 1e-5,
    "num_key_value_heads": 2,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_bias": True,
}
del DEFAULTS["rms_norm_eps"]


class PlainMLP(nn.Module):
    """c_proj(activation(c_fc(x)))."""

    def __init__(self, config: DecoderConfig) -> None:
        self.c_fc = Linear(config.hidden_size, config.intermediate_size, config.mlp_bias)
        self.c_proj = Linear(config.intermediate_size, config.hidden_size, config.mlp_bias)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(ops.activated(self.c_fc(x), self.activation))


class Layer(PreNormLayer):
    """The usual pre-norm layer with the plain MLP."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.mlp = PlainMLP(config)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a Starcoder2ForCausalLM; `use_bias` is for every projection."""
    hf = {**hf, "rms_norm_eps": hf["norm_epsilon"]}
    fields = common_fields(hf, "starcoder2")
    fields["windows"] = (window_of(hf),) * fields["num_layers"]
    bias = bool(hf["use_bias"])
    return DecoderConfig(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        layer_norm=True,
        norm_bias=True,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
    )
