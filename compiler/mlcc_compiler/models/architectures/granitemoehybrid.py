"""Granite 4 (IBM, 2025): Mamba 2 mixers, attention in a few layers, muP's multipliers, mostly no
positions, and an MLP in every layer, optionally with a mixture of experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from mlcc_compiler.ir._tvm import Tensor
from mlcc_compiler.models.config import DECODER_DEFAULTS, DecoderConfig, common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.layers import GatedMLP, PreNormLayer
from mlcc_compiler.models.mamba import Mamba, Mixer, mixer_of
from mlcc_compiler.models.moe import Experts, MixtureOfExperts, chosen_of, count_of

DEFAULTS = DECODER_DEFAULTS | {
    "intermediate_size": 11008,
    "attention_multiplier": 1.0,
    "embedding_multiplier": 1.0,
    "logits_scaling": 1.0,
    "residual_multiplier": 1.0,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 1024,
    "position_embedding_type": None,
    "layer_types": None,
    "attention_bias": False,
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_head": "auto",
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
    "time_step_limit": (0.0, inf),
}
ALIASES = {"layers_block_type": "layer_types"}
"""Other names of fields, which overrule them as in transformers."""
SCANS = ("mamba", "linear_attention")
"""Names of layers with a scan in `layer_types`, old and new."""
ATTENDS = ("attention", "full_attention")


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder whose `scans` layers have a mixer, the others attention."""

    mamba: Mamba | None
    """None if no layer has one."""
    scans: tuple[bool, ...]
    experts: Experts | None


class Layer(PreNormLayer):
    """The usual pre-norm layer, with a mixer instead of attention in `scans` layers."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        del self.mlp
        self.shared_mlp = GatedMLP(config)
        if config.experts is not None:
            self.mlp = MixtureOfExperts(config, config.experts)
        self.mixed = config.experts is not None
        self.scans = config.scans[layer]
        if config.mamba is not None and self.scans:
            del self.self_attn
            self.mamba = Mixer(config.hidden_size, config.mamba, layer)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        normed = self.input_layernorm(x)
        x = x + self._scaled(self.mamba(normed) if self.scans else self.self_attn(normed, table))
        normed = self.post_attention_layernorm(x)
        out = self.shared_mlp(normed)
        return x + self._scaled(self.mlp(normed) + out if self.mixed else out)


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a GraniteMoeHybridForCausalLM."""
    fields = common_fields(hf, "granitemoehybrid")
    layers, scans = fields["num_layers"], scanning(hf, fields["num_layers"])
    fields |= {
        "intermediate_size": require(hf, "shared_intermediate_size"),
        "attention_scale": positive(hf, "attention_multiplier"),
    }
    turned = hf["position_embedding_type"] == "rope"
    if not turned:
        fields["rope_of_layer"] = (None,) * layers
    bias = bool(hf["attention_bias"])
    inner = fields["hidden_size"] * require(hf, "mamba_expand")
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context),) if turned else (),
        qkv_bias=bias,
        output_bias=bias,
        embed_scale=positive(hf, "embedding_multiplier"),
        residual_scale=positive(hf, "residual_multiplier"),
        logit_scale=1 / positive(hf, "logits_scaling"),
        scans=scans,
        experts=None if hf["num_local_experts"] == 0 else _experts(hf),
        mamba=mixer_of(hf, inner, fields) if any(scans) else None,
    )


def _experts(hf: HfConfig) -> Experts:
    count = count_of(hf, "num_local_experts")
    return Experts(
        count=count,
        chosen=chosen_of(hf, count),
        inner=require(hf, "intermediate_size"),
        normalise=True,
    )


def scanning(hf: HfConfig, layers: int) -> tuple[bool, ...]:
    """Which layers scan; all by default."""
    types = hf["layer_types"]
    if types is None:
        return (True,) * layers
    if not isinstance(types, list) or len(types) != layers:
        raise refuse("layer_types", f"a list of {layers}, one for each layer", types)
    for kind in types:
        if kind not in (*SCANS, *ATTENDS):
            raise refuse("layer_types", f"made of {' and '.join((*SCANS, *ATTENDS))}", kind)
    return tuple(kind in SCANS for kind in types)
