"""DeepSeek V2 and V2-Lite (DeepSeek-AI, 2024): latent attention, and experts after the first
layers, with group-limited routing in V2. `mlcc_compiler.ir.mla` describes the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.ir.mla import MlaShape
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    growth_of,
    rope_from_hf,
    rope_parameters,
)
from mlcc_compiler.models.fields import HfConfig, optional, positive, refuse, require
from mlcc_compiler.models.layers import Linear, PreNormLayer, RMSNorm
from mlcc_compiler.models.moe import Experts, MixtureOfExperts, chosen_of, correction_of, count_of

DEFAULTS = DECODER_DEFAULTS | {
    "num_key_value_heads": None,
    "first_k_dense_replace": 0,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1407,
    "num_experts_per_tok": None,
    "routed_scaling_factor": 1.0,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "norm_topk_prob": False,
    "moe_layer_freq": 1,
    "n_group": None,
    "topk_group": None,
}
ALIASES = {"num_experts": "n_routed_experts"}
"""Other names of fields, which overrule them as in transformers."""
_METHODS = ("greedy", "group_limited_greedy")
_MOST_DRAFTS = 8
_LATENT_EPS = 1e-6
"""Epsilon of the norms inside attention, whatever `rms_norm_eps` is."""


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder with latent attention. `head_dim` is that of queries: nope + rope."""

    latent: MlaShape
    query_rank: int | None
    """Rank of the query's projection; None = one full matrix."""
    dense_layers: int
    """Number of first layers without experts."""
    experts: Experts | None
    """None if no layer has experts."""


class PerHead(nn.Module):
    """kv_b_proj [heads * (nope + value), rank]: maps a latent to each head's key and value.

    Attention's own kernels read it, one half along its rows and the other across them, and support
    no packed form, so it is float32 whatever the recipe: 226 MB of V2-Lite where q4 would be 32.
    That is 2.5 % of its q4 weights, and about 15 % of the 1.5 GB that a token reads (2.4e9
    weights).
    """

    def __init__(self, config: Config) -> None:
        self.weight = nn.Parameter(config.latent.weight, "float32")


class LatentAttention(nn.Module):
    """Multi-head latent attention: a token's cache entry is one latent for all heads."""

    def __init__(self, config: Config, layer: int) -> None:
        self.config, self.layer = config, layer
        hidden, bias, shape = config.hidden_size, config.qkv_bias, config.latent
        width = shape.heads * config.head_dim
        if config.query_rank is None:
            self.q_proj = Linear(hidden, width)
        else:
            self.q_a_proj = Linear(hidden, config.query_rank, bias)
            self.q_a_layernorm = RMSNorm(config.query_rank, _LATENT_EPS)
            self.q_b_proj = Linear(config.query_rank, width)
        self.kv_a_proj_with_mqa = Linear(hidden, shape.width, bias)
        self.kv_a_layernorm = RMSNorm(shape.rank, shape.eps)
        self.kv_b_proj = PerHead(config)
        self.o_proj = Linear(shape.heads * shape.value, hidden, config.output_bias)

    def queries(self, x: Tensor) -> Tensor:
        """x [n, hidden] -> [n, heads * (nope + rope)]."""
        if self.config.query_rank is None:
            return self.q_proj(x)
        return self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))

    def forward(self, x: Tensor, table: Tensor, growth: Tensor | None = None) -> Tensor:
        """`growth` f32[n, 1]: factor of each token's queries."""
        config, rows, shape = self.config, x.shape[0], self.config.latent
        q = self.queries(x)
        q = q if growth is None else ops.combine(q, growth)
        q = nn.op.reshape(q, (rows, shape.heads, config.head_dim))
        latent, norm = self.kv_a_proj_with_mqa(x), self.kv_a_layernorm.weight
        weight = self.kv_b_proj.weight
        out = ops.latent_attention(q, latent, norm, weight, table, self.layer, shape)
        return self.o_proj(nn.op.reshape(out, (rows, shape.heads * shape.value)))


class Layer(PreNormLayer):
    """The usual pre-norm layer, with latent attention, and experts after the dense layers."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.self_attn = LatentAttention(config, layer)
        if config.experts is not None and layer >= config.dense_layers:
            self.mlp = MixtureOfExperts(config, config.experts, "shared_experts")


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a DeepseekV2ForCausalLM."""
    return config_of(hf, context, "deepseek_v2", _experts)


def config_of(
    hf: HfConfig, context: int, architecture: str, experts_of: Callable[[HfConfig], Experts]
) -> Config:
    """Fields shared by all latent-attention models; `experts_of` reads the mixture."""
    nope, rope = require(hf, "qk_nope_head_dim"), require(hf, "qk_rope_head_dim")
    if rope % 2:
        raise refuse("qk_rope_head_dim", "an even number", rope)
    bias = bool(hf.get("attention_bias", False))
    fields = common_fields({**hf, "head_dim": rope}, architecture)
    fields |= {"head_dim": nope + rope, "attention_scale": _scale(hf, nope + rope)}
    dense = hf["first_k_dense_replace"]
    if isinstance(dense, bool) or not isinstance(dense, int) or dense < 0:
        raise refuse("first_k_dense_replace", "a number of layers", dense)
    table = rope_from_hf({**hf, "head_dim": rope}, context)
    if table.rotary_dim != rope:
        part = table.rotary_dim / rope
        raise refuse("partial_rotary_factor", "1, as all of qk_rope_head_dim is turned", part)
    return Config(
        **fields,
        ropes=(table,),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bool(hf.get("mlp_bias", False)),
        latent=MlaShape(
            heads=fields["num_heads"],
            nope=nope,
            rope=rope,
            rank=require(hf, "kv_lora_rank"),
            value=require(hf, "v_head_dim"),
            scale=fields["attention_scale"],
            eps=_LATENT_EPS,
        ),
        query_rank=None if hf["q_lora_rank"] is None else require(hf, "q_lora_rank"),
        dense_layers=dense,
        growth=growth_of(hf, context),
        experts=experts_of(hf) if dense < fields["num_layers"] else None,
        ignored=_drafts(hf, fields["num_layers"]),
    )


def _scale(hf: HfConfig, width: int) -> float:
    """Factor of the scores: 1 / sqrt(width), with YaRN's temperature if `mscale_all_dim` gives
    it."""
    parameters = rope_parameters(hf)
    kind = str(parameters.get("rope_type") or parameters.get("type") or "default")
    weight = optional(parameters, "mscale_all_dim") if parameters.get("mscale_all_dim") else None
    if kind == "default" or weight is None:
        return float(width**-0.5)
    factor = positive(parameters, "factor")
    mscale = 1.0 if factor <= 1 else 0.1 * weight * log(factor) + 1.0
    return float(width**-0.5 * mscale**2)


def _experts(hf: HfConfig) -> Experts:
    """The mixture of every layer that is not dense. Raises UnsupportedError for other routings."""
    known = {"scoring_func": "softmax", "norm_topk_prob": False, "moe_layer_freq": 1}
    for key, value in known.items():
        only(hf, key, (value,))
    only(hf, "topk_method", _METHODS)
    count, inner = count_of(hf, "n_routed_experts"), require(hf, "moe_intermediate_size")
    chosen, shared = chosen_of(hf, count), hf["n_shared_experts"]
    correction = None
    if hf["topk_method"] == "group_limited_greedy":
        correction = replace(correction_of(hf, count, chosen, 0.0), best=1, bias=False)
    return Experts(
        count=count,
        chosen=chosen,
        inner=inner,
        normalise=False,
        correction=correction,
        scale=positive(hf, "routed_scaling_factor"),
        shared=0 if shared is None else inner * require(hf, "n_shared_experts"),
    )


def only(hf: HfConfig, key: str, known: Sequence[Any]) -> None:
    """Raises UnsupportedError for a field that is set to anything but these."""
    if hf.get(key) is not None and hf[key] not in known:
        raise UnsupportedError(
            f"config.json: '{key}' {hf[key]!r} is not supported, only "
            f"{' or '.join(map(repr, known))}; of these models DeepSeek V2, V2-Lite, V3, Kimi K2 "
            "and Linear, Mistral 4, GLM-4.7-Flash and those made from them run here"
        )


def _drafts(hf: HfConfig, layers: int) -> tuple[str, ...]:
    """Multi-token-prediction layers after the others (V3), which are ignored."""
    more = hf.get("num_nextn_predict_layers")
    count = more if isinstance(more, int) and 0 < more <= _MOST_DRAFTS else 0
    return tuple(rf"^model\.layers\.{layers + i}\." for i in range(count))
