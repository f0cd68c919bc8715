"""Gemma 4, text (Gemma Team, 2026): Gemma 3's norms on both sides, with two head widths, shared
keys and values in the last layers; per-layer embeddings (Gemma 3n); and in the largest a mixture
beside each MLP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.models import layers, ops, per_layer_embedding
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
    rope_parameters,
    windows_by_type,
    with_rope,
)
from mlcc_compiler.models.fields import HfConfig, layer_types, optional, refuse, require
from mlcc_compiler.models.layers import GatedMLP, Linear, RMSNorm
from mlcc_compiler.models.moe import Experts, MixtureOfExperts, chosen_of, count_of
from mlcc_compiler.models.rope import Rope

DEFAULTS = DECODER_DEFAULTS | {
    "vocab_size": 262144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "sliding_window": 512,
    "final_logit_softcapping": None,
    "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256,
    "attention_k_eq_v": False,
    "num_kv_shared_layers": 0,
    "enable_moe_block": False,
    "use_double_wide_mlp": False,
}
"""Sizes too: a text_config inside a multimodal config.json is written without its defaults."""
_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1000000.0,
    },
}
_GLOBAL_WIDTH = 512
"""Default head width of full-attention layers."""


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder whose layers differ in their heads; an entry per layer, as in `windows`."""

    head_dims: tuple[int, ...]
    kv_heads: tuple[int, ...]
    kv_layers: tuple[int, ...]
    """The layer whose keys and values each layer uses: its own number, or an earlier one's."""
    key_is_value: tuple[bool, ...]
    """Whether values are the keys before normalisation."""
    inner: tuple[int, ...]
    """Inner widths of the MLPs."""
    inputs: per_layer_embedding.LayerInputs | None
    experts: Experts | None

    def of_layer(self, layer: int) -> DecoderConfig:
        """The config of one layer's attention and MLP; only windows see an image both ways."""
        return replace(
            self,
            images_both_ways=self.images_both_ways and self.windows[layer] is not None,
            head_dim=self.head_dims[layer],
            num_kv_heads=self.kv_heads[layer],
            intermediate_size=self.inner[layer],
        )


Stack = per_layer_embedding.Stack


class Attention(layers.Attention):
    """Attention with normalised queries, keys and values and unscaled scores; or with queries only,
    on the keys and values of another layer."""

    def __init__(self, config: Config, layer: int) -> None:
        self.kv_layer, self.shares = config.kv_layers[layer], config.kv_layers[layer] != layer
        self.key_is_value = config.key_is_value[layer]
        own = config.of_layer(layer)
        super().__init__(own, layer)
        self.ones = np.ones(own.head_dim, np.float32)
        unused = ["k_proj", "v_proj", "k_norm"] if self.shares else []
        for name in unused or ["v_proj"] * self.key_is_value:
            delattr(self, name)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        config, rows = self.config, x.shape[0]
        shape = config.attention(self.layer)
        q = self.apply_rope(self.q_norm(self._heads(self.q_proj(x), config.num_heads)), table)
        if self.shares:
            out = ops.attention(q, None, None, self.kv_layer, shape)
        else:
            k = self._heads(self.k_proj(x), config.num_kv_heads)
            v = k if self.key_is_value else self._heads(self.v_proj(x), config.num_kv_heads)
            ones = nn.Tensor(_expr=relax.const(self.ones))
            v = ops.rms_norm(v, ones, config.norm_eps, 0.0)
            out = ops.attention(q, self.apply_rope(self.k_norm(k), table), v, self.layer, shape)
        return self.o_proj(nn.op.reshape(out, (rows, config.num_heads * config.head_dim)))

    def _heads(self, x: Tensor, count: int) -> Tensor:
        return nn.op.reshape(x, (x.shape[0], count, self.config.head_dim))


class Mixture(MixtureOfExperts):
    """A mixture whose router has its own normalised input, and a factor for each expert."""

    def __init__(self, config: DecoderConfig, experts: Experts) -> None:
        super().__init__(config, experts)
        self.eps, self.root = config.norm_eps, config.hidden_size**-0.5
        self.scale = nn.Parameter((config.hidden_size,), "float32")
        self.per_expert_scale = nn.Parameter((experts.count,), "float32")

    def of(self, routed: Tensor, x: Tensor) -> Tensor:
        """The experts' output for x, routed by `routed`, both a[n, hidden]."""
        normed = ops.rms_norm(routed, self.scale, self.eps, 0.0) * self.root
        choice, weights = self._route(self.gate(normed))
        weights = ops.scale_chosen(weights, choice, self.per_expert_scale)
        return ops.combine(self._outputs(x, choice), weights)


class Layer(nn.Module):
    """x + norm(attention(norm(x))), then x + norm(mlp(norm(x))), optionally with a mixture, then x
    + norm(project(gate(x) * input)), with per-layer inputs; all times a scalar."""

    def __init__(self, config: Config, layer: int) -> None:
        def norm() -> RMSNorm:
            return RMSNorm(config.hidden_size, config.norm_eps)

        self.activation = config.activation
        self.self_attn = Attention(config, layer)
        self.mlp = GatedMLP(config.of_layer(layer))
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = norm(), norm()
        self.layer_scalar = nn.Parameter((1,), "float32")
        self.moe = None
        if config.experts is not None:
            self.moe = Mixture(config, config.experts)
            self.pre_feedforward_layernorm_2 = norm()
            self.post_feedforward_layernorm_1, self.post_feedforward_layernorm_2 = norm(), norm()
        if config.inputs is not None:
            hidden, width = config.hidden_size, config.inputs.width
            self.per_layer_input_gate = Linear(hidden, width)
            self.per_layer_projection = Linear(width, hidden)
            self.post_per_layer_input_norm = norm()

    def forward(self, x: Tensor, table: Tensor, own: Tensor | None = None) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), table)
        x = x + self.post_attention_layernorm(attended)
        fed = self.mlp(self.pre_feedforward_layernorm(x))
        if self.moe is not None:
            mixed = self.moe.of(x, self.pre_feedforward_layernorm_2(x))
            fed = self.post_feedforward_layernorm_1(fed)
            fed = fed + self.post_feedforward_layernorm_2(mixed)
        x = x + self.post_feedforward_layernorm(fed)
        if own is not None:
            gated = ops.gated(self.per_layer_input_gate(x), own, self.activation)
            x = x + self.post_per_layer_input_norm(self.per_layer_projection(gated))
        return ops.scale_columns(x, self.layer_scalar)


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json (or its `text_config`) of a Gemma4ForCausalLM. Raises UnsupportedError for a
    bidirectional one."""
    if hf.get("use_bidirectional_attention") == "all":
        raise UnsupportedError(
            "config.json: 'use_bidirectional_attention' \"all\" makes an encoder of Gemma 4, which "
            "is not supported; EmbeddingGemma (Gemma 3) is"
        )
    fields = common_fields(hf, "gemma4", "hidden_activation")
    types = _types(hf, fields["num_layers"])
    widths, kv_heads = _heads(hf, types, fields)
    kv_layers = kv_layers_of(hf, types)
    ropes, which = _ropes(hf, types, widths, context)
    shared = tuple(kv_layer != i for i, kv_layer in enumerate(kv_layers))
    inner, wide = fields["intermediate_size"], bool(hf["use_double_wide_mlp"])
    bias, same = bool(hf.get("attention_bias", False)), bool(hf["attention_k_eq_v"])
    fields |= {"attention_scale": 1.0, "windows": windows_by_type(hf, types)}
    fields |= {"rope_of_layer": which}
    return Config(
        **fields,
        ropes=ropes,
        qk_norm=True,
        qkv_bias=bias,
        output_bias=bias,
        images_both_ways=hf.get("use_bidirectional_attention") == "vision",
        embed_scale=fields["hidden_size"] ** 0.5,
        final_softcap=optional(hf, "final_logit_softcapping"),
        ignored=unused_kv(shared),
        head_dims=widths,
        kv_heads=kv_heads,
        kv_layers=kv_layers,
        key_is_value=tuple(same and kind == "full_attention" for kind in types),
        inner=tuple(inner * (2 if wide and sharing else 1) for sharing in shared),
        inputs=per_layer_embedding.inputs_of(hf),
        experts=_experts(hf) if hf["enable_moe_block"] else None,
    )


def kv_layers_of(hf: HfConfig, types: Sequence[str]) -> tuple[int, ...]:
    """The layer whose keys and values each layer uses: the last `num_kv_shared_layers` use the last
    earlier layer of their type. Raises CheckpointError."""
    count, layers_ = hf["num_kv_shared_layers"], len(types)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < layers_:
        raise refuse("num_kv_shared_layers", f"a number of layers below {layers_}", count)
    first = layers_ - count
    last = {kind: i for i, kind in enumerate(types[:first])}
    if count and set(types[first:]) - set(last):
        raise refuse("num_kv_shared_layers", "such that a layer of each type is before", count)
    return (*range(first), *(last[kind] for kind in types[first:]))


def unused_kv(shared: Sequence[bool]) -> tuple[str, ...]:
    """Key and value tensors of layers that share another layer's: present in checkpoints, never
    read."""
    return tuple(
        rf"layers\.{i}\.self_attn\.[kv]_(proj|norm)\."
        for i, sharing in enumerate(shared)
        if sharing
    )


def _types(hf: HfConfig, count: int) -> Sequence[str]:
    """Five sliding layers per full-attention layer; the last is always full."""
    pattern = ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(count)]
    return [*layer_types(hf, pattern)[:-1], "full_attention"]


def _heads(
    hf: HfConfig, types: Sequence[str], fields: dict[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(head_dim, KV heads) of each layer: by `per_layer_config`, as transformers 5 has it, or by
    `global_head_dim` and `num_global_key_value_heads`. Raises CheckpointError."""
    given = hf.get("per_layer_config")
    if given is None:
        wide: dict[str, Any] = {"head_dim": hf.get("global_head_dim", _GLOBAL_WIDTH)}
        if hf["attention_k_eq_v"] and hf.get("num_global_key_value_heads") is not None:
            wide["num_key_value_heads"] = hf["num_global_key_value_heads"]
        given = {str(i): wide for i, kind in enumerate(types) if kind == "full_attention"}
    known = {"head_dim", "num_key_value_heads"}
    if not isinstance(given, dict) or any(
        not isinstance(own, dict) or set(own) - known for own in given.values()
    ):
        raise refuse("per_layer_config", f"objects of {' and '.join(sorted(known))}", given)
    owns = [
        common_fields({**hf, **given.get(str(i), {})}, "gemma4", "hidden_activation")
        for i in range(len(types))
    ]
    return tuple(own["head_dim"] for own in owns), tuple(own["num_kv_heads"] for own in owns)


def _ropes(
    hf: HfConfig, types: Sequence[str], widths: Sequence[int], context: int
) -> tuple[tuple[Rope, ...], tuple[int, ...]]:
    """The rotations, one per type and head width, and which one each layer uses."""
    given = rope_parameters(hf) or _ROPES
    made: dict[tuple[str, int], Rope] = {}
    for kind, width in zip(types, widths, strict=True):
        own = given.get(kind)
        if not isinstance(own, dict):
            raise refuse("rope_parameters", f"an object for each type of layer, as {kind}", given)
        if own.get("rope_type", "default") == "default":
            own = {**own, "partial_rotary_factor": 1.0}  # as transformers has it
        plain = {**with_rope(hf, own), "head_dim": width}
        made.setdefault((kind, width), rope_from_hf(plain, context))
    places = list(made)
    which = tuple(places.index(pair) for pair in zip(types, widths, strict=True))
    return tuple(made.values()), which


def _experts(hf: HfConfig) -> Experts:
    count = count_of(hf, "num_experts")
    return Experts(
        count=count,
        chosen=chosen_of(hf, count, "top_k_experts"),
        inner=require(hf, "moe_intermediate_size"),
        normalise=True,
    )
