"""Falcon-H1 (TII, 2025): a Mamba 2 mixer and attention in parallel in every layer, and multipliers
(muP) throughout.

A layer has pages and a state, in two cache groups, so its state gets its own layer number, after
those of all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DECODER_DEFAULTS, DecoderConfig, common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.layers import Attention, GatedMLP, hidden_norm
from mlcc_compiler.models.mamba import Mamba, Mixer, mixer_of

DEFAULTS = DECODER_DEFAULTS | {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "mamba_d_ssm": 1024,
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
    "mamba_norm_before_gate": True,
    "mamba_rms_norm": False,
    "projectors_bias": False,
    "time_step_limit": (0.0, inf),
    "lm_head_multiplier": 1.0,
    "embedding_multiplier": 1.0,
    "mlp_multipliers": None,
    "key_multiplier": 1.0,
    "attention_in_multiplier": 1.0,
    "attention_out_multiplier": 1.0,
    "ssm_multipliers": None,
    "ssm_in_multiplier": 1.0,
    "ssm_out_multiplier": 1.0,
    "attention_bias": False,
    "mlp_bias": False,
}


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder all of whose layers scan and attend; pairs of factors are for input and output."""

    mamba: Mamba
    attention_factors: tuple[float, float]
    scan_factors: tuple[float, float]
    mlp_factors: tuple[float, float]
    """Factors of the gate and of the output."""


class ScaledMLP(GatedMLP):
    """A gated MLP with scaled gate (before its activation) and output."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.factors = config.mlp_factors

    def forward(self, x: Tensor) -> Tensor:
        gate = _scaled(self.gate_proj(x), self.factors[0])
        return _scaled(
            self.down_proj(ops.gated(gate, self.up_proj(x), self.activation)), self.factors[1]
        )


class Layer(nn.Module):
    """x + mixer(norm(x)) + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: Config, layer: int) -> None:
        self.config = config
        self.mamba = Mixer(config.hidden_size, config.mamba, config.num_layers + layer)
        self.self_attn = Attention(config, layer)
        self.feed_forward = ScaledMLP(config)
        self.input_layernorm, self.pre_ff_layernorm = hidden_norm(config), hidden_norm(config)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        config, normed = self.config, self.input_layernorm(x)
        (scan_in, scan_out), (attend_in, attend_out) = config.scan_factors, config.attention_factors
        scanned = _scaled(self.mamba(_scaled(normed, scan_in)), scan_out)
        attended = _scaled(self.self_attn(_scaled(normed, attend_in), table), attend_out)
        x = x + (scanned + attended)
        return x + self.feed_forward(self.pre_ff_layernorm(x))


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a FalconH1ForCausalLM. The key factor is folded into the score's scale."""
    fields = common_fields(hf, "falcon_h1")
    fields["attention_scale"] *= positive(hf, "key_multiplier")
    bias = bool(hf["attention_bias"])
    gate, down = _factors(hf, "mlp_multipliers", 2)
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(hf["mlp_bias"]),
        embed_scale=positive(hf, "embedding_multiplier"),
        logit_scale=positive(hf, "lm_head_multiplier"),
        mamba=_mamba(hf, fields),
        attention_factors=_pair(hf, "attention"),
        scan_factors=_pair(hf, "ssm"),
        mlp_factors=(gate, down),
    )


def _mamba(hf: HfConfig, fields: dict[str, Any]) -> Mamba:
    inner = fields["hidden_size"] * require(hf, "mamba_expand")
    if hf["mamba_d_ssm"] is not None:
        inner = require(hf, "mamba_d_ssm")
    mamba = mixer_of(hf, inner, fields)
    scales = tuple(_factors(hf, "ssm_multipliers", 5))
    return replace(
        mamba,
        output_bias=bool(hf["projectors_bias"]),
        norm_groups=mamba.norm_groups if hf["mamba_rms_norm"] else None,
        norm_first=bool(hf["mamba_norm_before_gate"]),
        scales=() if set(scales) == {1.0} else scales,
    )


def _pair(hf: HfConfig, name: str) -> tuple[float, float]:
    return positive(hf, f"{name}_in_multiplier"), positive(hf, f"{name}_out_multiplier")


def _factors(hf: HfConfig, key: str, count: int) -> Sequence[float]:
    """`count` positive numbers; null means all 1."""
    given = hf[key]
    if given is None:
        return [1.0] * count
    if not isinstance(given, list) or len(given) != count:
        raise refuse(key, f"a list of {count} numbers", given)
    return [positive({key: value}, key) for value in given]


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor
