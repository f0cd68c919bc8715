"""Kimi Linear (Kimi Team, 2025): layers of Kimi Delta Attention (a gated delta rule with a decay
per channel) for each one of latent attention without positions; Kimi K2's mixtures of experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.ir.states import ConvShape, DeltaShape
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures import deepseek_v2, deepseek_v3
from mlcc_compiler.models.config import DECODER_DEFAULTS
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import Convolution, GatedMLP, Linear, RMSNorm, hidden_norm, stacked
from mlcc_compiler.models.mamba import taps_of
from mlcc_compiler.models.moe import MixtureOfExperts
from mlcc_compiler.models.rope import Rope

NO_MTP = "Kimi Linear is published without such a layer"
DEFAULTS = DECODER_DEFAULTS | {
    "vocab_size": 163840,
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-5,
    "num_key_value_heads": 32,
    "attention_bias": False,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 1024,
    "num_experts_per_tok": 8,
    "num_local_experts": 256,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.446,
    "layer_types": None,
    "mlp_layer_types": None,
    "linear_head_dim": 128,
    "linear_num_heads": 32,
    "linear_conv_kernel_dim": 4,
}
_NAMES = {
    "model_max_length": "max_position_embeddings",
    "moe_renormalize": "norm_topk_prob",
    "num_expert_group": "n_group",
    "num_experts": "num_local_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
}
"""The hub's field names -> those of other configs."""
_LINEAR = {
    "head_dim": "linear_head_dim",
    "num_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
"""Fields of `linear_attn_config`."""
_NOT_READ = {
    "mla_use_nope": True,
    "mla_use_output_gate": False,
    "attn_res_block_size": None,
    "latent_moe_use_norm": False,
    "routed_expert_hidden_size": None,
    "gate_lower_bound": None,
    "use_full_rank_gate": False,
}
"""Unsupported values in the text part of Kimi K3, also of type kimi_linear; the last two in
`linear_attn_config`.
"""
_ATTENTION, _MLP = ("linear_attention", "full_attention"), ("dense", "sparse")


@dataclass(frozen=True, kw_only=True)
class Config(deepseek_v2.Config):
    """A decoder whose `linear` layers have a state, the others latents."""

    delta: DeltaShape
    taps: int
    linear: tuple[bool, ...]
    sparse: tuple[bool, ...]


class DeltaAttention(nn.Module):
    """Project, convolve over time, apply the delta rule, normalise and gate each head."""

    def __init__(self, config: Config, layer: int) -> None:
        shape, hidden = config.delta, config.hidden_size
        heads, width, low = shape.v_heads, shape.v_heads * shape.v_dim, shape.v_dim
        self.layer, self.delta = layer, shape
        self.conv = ConvShape(shape.channels, config.taps, config.activation)
        self.q_proj, self.k_proj, self.v_proj = (Linear(hidden, width) for _ in range(3))
        convolutions = (Convolution(width, config.taps) for _ in range(3))
        self.q_conv1d, self.k_conv1d, self.v_conv1d = convolutions
        self.f_a_proj, self.f_b_proj = Linear(hidden, low), Linear(low, width)
        self.g_a_proj, self.g_b_proj = Linear(hidden, low), Linear(low, width)
        self.b_proj = Linear(hidden, heads)
        self.dt_bias = nn.Parameter((width,), "float32")
        self.A_log = nn.Parameter((heads,), "float32")
        self.o_norm = RMSNorm(shape.v_dim, config.norm_eps)
        self.o_proj = Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        shape, width = self.delta, self.delta.v_heads * self.delta.v_dim
        qkv = ops.side_by_side([self.q_proj(x), self.k_proj(x), self.v_proj(x)])
        weights = [conv.weight for conv in (self.q_conv1d, self.k_conv1d, self.v_conv1d)]
        qkv = ops.causal_conv(qkv, stacked(weights), None, self.layer, self.conv)
        b, a = self.b_proj(x), self.f_b_proj(self.f_a_proj(x))
        out = ops.delta_rule(qkv, b, a, (self.A_log, self.dt_bias), self.layer, shape)
        out = nn.op.reshape(self.o_norm(out), (x.shape[0], width))
        gate = self.g_b_proj(self.g_a_proj(x))
        return self.o_proj(ops.gated(gate, out, "sigmoid"))


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), where attention may be a delta rule."""

    def __init__(self, config: Config, layer: int) -> None:
        self.linear = config.linear[layer]
        attention = DeltaAttention if self.linear else deepseek_v2.LatentAttention
        self.self_attn = attention(config, layer)
        if config.sparse[layer]:
            assert config.experts is not None
            self.mlp = MixtureOfExperts(config, config.experts, "shared_experts")
        else:
            self.mlp = GatedMLP(config)
        self.input_layernorm, self.post_attention_layernorm = (
            hidden_norm(config),
            hidden_norm(config),
        )

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        normed = self.input_layernorm(x)
        x = x + (self.self_attn(normed) if self.linear else self.self_attn(normed, table))
        return x + self.mlp(self.post_attention_layernorm(x))


def complete(hf: HfConfig) -> HfConfig:
    """Renames fields to those of other families; `linear_attn_config` takes precedence."""
    hf = {**hf, **{own: hf[name] for name, own in _NAMES.items() if name in hf}}
    given = hf.get("linear_attn_config") or {}
    if not isinstance(given, dict):
        raise refuse("linear_attn_config", "an object", given)
    return {**hf, **{own: given[name] for name, own in _LINEAR.items() if name in given}}


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a KimiLinearForCausalLM."""
    layers = require(hf, "num_hidden_layers")
    linear, sparse = _linear(hf, layers), _sparse(hf, layers)
    rope = require(hf, "qk_rope_head_dim")
    everything = {**hf, **(hf.get("linear_attn_config") or {})}
    for key, known in _NOT_READ.items():
        deepseek_v2.only(everything, key, (known,))
    # what `rope_*` says is not read: no layer knows positions
    plain = {k: v for k, v in hf.items() if not k.startswith(("rope_", "partial_rotary"))}
    dense = {"first_k_dense_replace": 0 if any(sparse) else layers}  # its own Layer says which
    base = deepseek_v2.config_of({**plain, **dense}, context, "kimi_linear", _experts)
    nothing_turns = Rope((0.0,) * (rope // 2))  # the kernels of latents turn what a table says
    width, heads = require(hf, "linear_head_dim"), require(hf, "linear_num_heads")
    return Config(
        **{**vars(base), "ropes": (nothing_turns,), "tie_embeddings": False},
        delta=DeltaShape(heads, heads, width, width, by_channel=True),
        taps=taps_of(hf, "linear_conv_kernel_dim"),
        linear=linear,
        sparse=sparse,
    )


def _experts(hf: HfConfig) -> Any:
    """Kimi K2's mixture. Raises UnsupportedError for other routings."""
    deepseek_v2.only(hf, "moe_router_activation_func", ("sigmoid",))
    return deepseek_v3.experts_of({**hf, "n_routed_experts": hf["num_local_experts"]})


def _linear(hf: HfConfig, layers: int) -> tuple[bool, ...]:
    """Which layers have a state: by `layer_types`, by the lists of `linear_attn_config`, whose
    first layer is 1, or all but every fourth, as in transformers."""
    types = hf["layer_types"]
    given = hf.get("linear_attn_config") or {}
    if types is None and {"full_attn_layers", "kda_layers"} <= set(given):
        named = {key: _numbers(given, key, layers) for key in ("kda_layers", "full_attn_layers")}
        if sorted([*named["kda_layers"], *named["full_attn_layers"]]) != list(range(1, layers + 1)):
            raise refuse("linear_attn_config", f"layers 1 to {layers}, each in one list", given)
        return tuple(i + 1 in named["kda_layers"] for i in range(layers))
    if types is None:
        return tuple(i == 0 or i % 4 != 0 for i in range(layers))
    return tuple(kind == _ATTENTION[0] for kind in _kinds(hf, "layer_types", layers, _ATTENTION))


def _sparse(hf: HfConfig, layers: int) -> tuple[bool, ...]:
    """Which layers have experts: by `mlp_layer_types`, or all after `first_k_dense_replace`."""
    if hf["mlp_layer_types"] is not None:
        kinds = _kinds(hf, "mlp_layer_types", layers, _MLP)
        return tuple(kind == "sparse" for kind in kinds)
    dense = hf.get("first_k_dense_replace", 1)
    if isinstance(dense, bool) or not isinstance(dense, int) or dense < 0:
        raise refuse("first_k_dense_replace", "a number of layers", dense)
    return tuple(layer >= dense for layer in range(layers))


def _numbers(given: HfConfig, key: str, layers: int) -> list[int]:
    numbers = given[key]
    if not isinstance(numbers, list) or not all(type(n) is int for n in numbers):
        raise refuse(key, f"a list of numbers from 1 to {layers}", numbers)
    return numbers


def _kinds(hf: HfConfig, key: str, layers: int, known: Sequence[str]) -> Sequence[str]:
    kinds = hf[key]
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise refuse(key, f"a list of {layers}, one for each layer", kinds)
    for kind in kinds:
        if kind not in known:
            raise refuse(key, f"made of {' and '.join(known)}", kind)
    return kinds
