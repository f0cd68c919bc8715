"""Llama 4's text (Meta, 2025): three layers with rope, with queries and keys of length 1, per layer
without positions; mixtures with a shared expert and one chosen expert, whose input is multiplied by
a sigmoid.

Contexts are limited to the length from which rope layers attend to chunks only, and queries of the
others are scaled by position; longer ones are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures import glm4_moe
from mlcc_compiler.models.config import DECODER_DEFAULTS, common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import Attention, PreNormLayer
from mlcc_compiler.models.moe import Experts, MixtureOfExperts, count_of

DEFAULTS = DECODER_DEFAULTS | {
    "attention_bias": False,
    "attention_chunk_size": 8192,
    "attn_temperature_tuning": True,
    "floor_scale": 8192,
    "head_dim": 128,
    "interleave_moe_layer_step": 1,
    "intermediate_size_mlp": 16384,
    "max_position_embeddings": 131072,
    "moe_layers": None,
    "no_rope_layer_interval": 4,
    "no_rope_layers": None,
    "num_experts_per_tok": 1,
    "num_key_value_heads": 8,
    "num_local_experts": 16,
    "rms_norm_eps": 1e-5,
    "use_qk_norm": True,
}

_KINDS = ("chunked_attention", "full_attention")
"""Layer kinds, equivalent up to the supported context."""


@dataclass(frozen=True, kw_only=True)
class Config(glm4_moe.Config):
    """A decoder some of whose layers are `sparse`."""

    unit_queries: bool


class UnitAttention(Attention):
    """Attention whose queries and keys are rotated, then divided by their root mean square."""

    def rotate(self, q: Tensor, k: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor]:
        q, k = self.apply_rope(q, table), self.apply_rope(k, table)
        if table is None:
            return q, k
        ones = np.ones(self.config.head_dim, np.float32)
        one, eps = nn.Tensor(_expr=relax.const(ones)), self.config.norm_eps
        return ops.rms_norm(q, one, eps, 0.0), ops.rms_norm(k, one, eps, 0.0)


class Layer(PreNormLayer):
    """The usual pre-norm layer, with a mixture for an MLP where the layer is sparse."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        if config.unit_queries:
            self.self_attn = UnitAttention(config, layer)
        if config.sparse[layer]:
            assert config.experts is not None
            self.mlp = MixtureOfExperts(config, config.experts)


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a Llama4ForCausalLM, or the text of a Llama4ForConditionalGeneration. Raises
    UnsupportedError for a too long context, and for other numbers of experts per token."""
    _check_context(hf, context)
    fields = common_fields(hf, "llama4_text")
    layers, inner = fields["num_layers"], fields["intermediate_size"]
    for kind in hf.get("layer_types") or ():
        if kind not in _KINDS:
            raise refuse("layer_types", f"made of {' and '.join(_KINDS)}", kind)
    turned, bias = _rope_layers(hf, layers), bool(hf["attention_bias"])
    sparse = _sparse(hf, layers)
    fields |= {"intermediate_size": require(hf, "intermediate_size_mlp")}
    fields |= {"rope_of_layer": tuple(0 if rope else None for rope in turned)}
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context, default_theta=500000.0),),
        rope_pairs=True,
        qkv_bias=bias,
        output_bias=bias,
        unit_queries=bool(hf["use_qk_norm"]),
        sparse=sparse,
        experts=_experts(hf, inner) if any(sparse) else None,
    )


def _experts(hf: HfConfig, inner: int) -> Experts:
    if require(hf, "num_experts_per_tok") != 1:
        raise UnsupportedError(
            f"config.json: 'num_experts_per_tok' {hf['num_experts_per_tok']} is not supported; of "
            "Llama 4 those with one expert a token run here, as Scout and Maverick are"
        )
    return Experts(
        count=count_of(hf, "num_local_experts"),
        chosen=1,
        inner=inner,
        normalise=False,
        score="sigmoid",
        weighs_input=True,
        shared=inner,
    )


def _check_context(hf: HfConfig, context: int) -> None:
    """Refuse contexts beyond the chunk length, or beyond `floor_scale`, from which queries are
    scaled."""
    limits = {}
    if hf["attention_chunk_size"] is not None:
        limits["attention_chunk_size"] = require(hf, "attention_chunk_size")
    if hf["attn_temperature_tuning"]:
        limits["floor_scale"] = require(hf, "floor_scale") - 1
    for key, limit in limits.items():
        if context > limit:
            raise UnsupportedError(
                f"Llama 4 is built for contexts up to {limit} tokens, from where '{key}' matters; "
                f"use --context {limit}"
            )


def _rope_layers(hf: HfConfig, layers: int) -> Sequence[bool]:
    """Which layers use rope: `no_rope_layers` has a 1 for them."""
    given = hf["no_rope_layers"]
    if not given:
        every = require(hf, "no_rope_layer_interval")
        return [(i + 1) % every != 0 for i in range(layers)]
    if not isinstance(given, list) or len(given) < layers or any(v not in (0, 1) for v in given):
        raise refuse("no_rope_layers", f"a list of 0 and 1 for {layers} layers", given)
    return [bool(value) for value in given[:layers]]


def _sparse(hf: HfConfig, layers: int) -> tuple[bool, ...]:
    """`moe_layers`, or every `interleave_moe_layer_step`-th."""
    given: Any = hf["moe_layers"]
    if given is None:
        step = require(hf, "interleave_moe_layer_step")
        return tuple((i + 1) % step == 0 for i in range(layers))
    if not isinstance(given, list) or any(not isinstance(i, int) for i in given):
        raise refuse("moe_layers", "a list of layers", given)
    return tuple(i in given for i in range(layers))
