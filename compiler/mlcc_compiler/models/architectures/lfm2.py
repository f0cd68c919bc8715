"""LFM2 (Liquid AI, 2025): short gated convolutions, and attention in a few layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.ir.states import ConvShape
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.layers import Attention, Convolution, GatedMLP, Linear, hidden_norm
from mlcc_compiler.models.mamba import split, taps_of

DEFAULTS = {
    **DECODER_DEFAULTS,
    "intermediate_size": 12288,
    "max_position_embeddings": 128_000,
    "num_key_value_heads": 8,
    "norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_multiple_of": 256,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": True,
    "full_attn_idxs": None,
    "layer_types": None,
}
del DEFAULTS["rms_norm_eps"]
_TYPES = ("conv", "full_attention")


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder whose `short` layers convolve, the others attend."""

    conv: ConvShape
    short: tuple[bool, ...]


class ShortConv(nn.Module):
    """out(c * convolution(b * x)), with b, c and x of one projection."""

    def __init__(self, config: Config, layer: int) -> None:
        hidden, bias = config.hidden_size, config.conv.bias
        self.layer, self.shape = layer, config.conv
        self.in_proj = Linear(hidden, 3 * hidden, bias)
        self.conv = Convolution(hidden, config.conv.taps, bias)
        self.out_proj = Linear(hidden, hidden, bias)

    def forward(self, x: Tensor) -> Tensor:
        b, c, x = split(self.in_proj(x), [self.shape.channels] * 3)
        mixed = ops.gated(b, x, "identity")
        mixed = ops.causal_conv(mixed, self.conv.weight, self.conv.bias, self.layer, self.shape)
        return self.out_proj(ops.gated(c, mixed, "identity"))


class Layer(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: Config, layer: int) -> None:
        if config.short[layer]:
            self.conv = ShortConv(config, layer)
        else:
            self.self_attn = Attention(config, layer)
        self.short = config.short[layer]
        self.feed_forward = self.mlp_of(config, layer)
        self.operator_norm, self.ffn_norm = hidden_norm(config), hidden_norm(config)

    def mlp_of(self, config: Config, layer: int) -> nn.Module:
        """A layer's MLP; LFM2-MoE has mixtures in most."""
        return GatedMLP(config)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        normed = self.operator_norm(x)
        x = x + (self.conv(normed) if self.short else self.self_attn(normed, table))
        return x + self.feed_forward(self.ffn_norm(x))


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of an Lfm2ForCausalLM; older ones write `block_ff_dim` and `tie_embedding`."""
    hf = renamed(hf)
    inner = {"intermediate_size": _inner(hf)}
    return Config(**fields_of({**hf, **inner}, context, "lfm2"))


def renamed(hf: HfConfig) -> HfConfig:
    """Renames old fields, and drops those that transformers ignores here: hidden_act."""
    hf = {k: v for k, v in hf.items() if k not in ("hidden_act", "hidden_activation")}
    if "block_ff_dim" in hf:
        hf["intermediate_size"] = hf["block_ff_dim"]
    if "tie_embedding" in hf:
        hf["tie_word_embeddings"] = hf["tie_embedding"]
    return hf


def fields_of(hf: HfConfig, context: int, kind: str) -> dict[str, Any]:
    """The fields of `Config`; LFM2-MoE's too."""
    fields = common_fields({**hf, "rms_norm_eps": hf["norm_eps"]}, kind)
    bias = bool(hf["conv_bias"])
    return fields | {
        "ropes": (rope_from_hf(hf, context, default_theta=1e6),),
        "qk_norm": True,
        "conv": ConvShape(fields["hidden_size"], taps_of(hf, "conv_L_cache"), "identity", bias),
        "short": _short(hf, fields["num_layers"]),
    }


def _inner(hf: HfConfig) -> int:
    """The inner width of MLPs, which older configs give by its factors."""
    inner = require(hf, "intermediate_size")
    if not hf["block_auto_adjust_ff_dim"]:
        return inner
    inner = int(2 * inner / 3)
    if hf["block_ffn_dim_multiplier"] is not None:
        inner = int(positive(hf, "block_ffn_dim_multiplier") * inner)
        multiple = require(hf, "block_multiple_of")
        inner = -(-inner // multiple) * multiple
    return inner


def _short(hf: HfConfig, layers: int) -> tuple[bool, ...]:
    """Which layers convolve: by `layer_types`, or all but those in `full_attn_idxs`."""
    types: Sequence[str] | None = hf["layer_types"]
    if types is None:
        attend = range(layers) if hf["full_attn_idxs"] is None else hf["full_attn_idxs"]
        types = [_TYPES[i in attend] for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        raise refuse("layer_types", f"a list of {layers}, one for each layer", types)
    for kind in types:
        if kind not in _TYPES:
            raise refuse("layer_types", f"made of {' and '.join(_TYPES)}", kind)
    return tuple(kind == "conv" for kind in types)
