"""Qwen3-Next (Qwen Team, 2025): three layers of the gated delta rule (Yang et al., 2024) per layer
of attention with an output gate; mixtures of experts with a shared one. Norms multiply by 1 +
weight.

Its multi-token-prediction layer (`mtp.*`) drafts with `--mtp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.ir.states import ConvShape, DeltaShape
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures import qwen3_moe
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    Mtp,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import Attention, Convolution, GatedMLP, Linear, RMSNorm
from mlcc_compiler.models.moe import Experts, MixtureOfExperts, chosen_of, count_of

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULTS = DECODER_DEFAULTS | {
    "max_position_embeddings": 32768,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
}
MTP = Mtp(normed=True)
_ATTENTION = ("linear_attention", "full_attention")


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder whose `linear` layers have a state; `experts` is None if no layer is `sparse`."""

    delta: DeltaShape
    taps: int
    linear: tuple[bool, ...]
    experts: Experts | None
    sparse: tuple[bool, ...]

    def with_mtp_layers(self) -> Self:
        """One more layer of attention, with a mixture where the last layer has one."""
        linear, sparse = (*self.linear, False), (*self.sparse, self.sparse[-1])
        return replace(super().with_mtp_layers(), linear=linear, sparse=sparse)


class GatedAttention(Attention):
    """Attention whose output is multiplied by a sigmoid gate, projected with the queries."""

    def _projections(self, config: DecoderConfig) -> None:
        super()._projections(config)
        width = 2 * config.num_heads * config.head_dim
        self.q_proj = Linear(config.hidden_size, width, config.qkv_bias)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        heads, width = self.config.num_heads, self.config.head_dim
        both = self.q_proj(x)
        q, gate = (ops.take_parts(both, heads, [part]) for part in _neighbours(width, width))
        out = self.attend(q, self.k_proj(x), self.v_proj(x), table)
        return self.o_proj(ops.gated(gate, out, "sigmoid"))


class DeltaNet(nn.Module):
    """Project, convolve over time, apply the gated delta rule, normalise and gate each head."""

    def __init__(self, config: Config, layer: int) -> None:
        shape, hidden = config.delta, config.hidden_size
        self.layer, self.delta = layer, shape
        self.conv = ConvShape(shape.channels, config.taps, config.activation)
        values = shape.v_heads * shape.v_dim
        self._projections(hidden)
        self.conv1d = Convolution(shape.channels, config.taps)
        self.dt_bias = nn.Parameter((shape.v_heads,), "float32")
        self.A_log = nn.Parameter((shape.v_heads,), "float32")
        self.norm = RMSNorm(shape.v_dim, config.norm_eps)
        self.out_proj = Linear(values, hidden)

    def _projections(self, hidden: int) -> None:
        shape = self.delta
        values = shape.v_heads * shape.v_dim
        self.in_proj_qkvz = Linear(hidden, shape.channels + values)
        self.in_proj_ba = Linear(hidden, 2 * shape.v_heads)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x [n, hidden] -> input of the convolution, gate, b and a."""
        shape = self.delta
        values = shape.group * shape.v_dim  # of one key head, which lies beside its value heads
        q, k, v, z = _neighbours(shape.k_dim, shape.k_dim, values, values)
        qkvz = self.in_proj_qkvz(x)
        qkv = ops.take_parts(qkvz, shape.k_heads, [q, k, v])
        gate = ops.take_parts(qkvz, shape.k_heads, [z])
        ba = self.in_proj_ba(x)
        parts = _neighbours(shape.group, shape.group)
        b, a = (ops.take_parts(ba, shape.k_heads, [part]) for part in parts)
        return qkv, gate, b, a

    def forward(self, x: Tensor) -> Tensor:
        shape, rows = self.delta, x.shape[0]
        qkv, gate, b, a = self.project(x)
        qkv = ops.causal_conv(qkv, self.conv1d.weight, None, self.layer, self.conv)
        out = ops.delta_rule(qkv, b, a, (self.A_log, self.dt_bias), self.layer, shape)
        out = nn.op.reshape(self.norm(out), (rows, shape.v_heads * shape.v_dim))
        return self.out_proj(ops.gated(gate, out, "silu"))


class Layer(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x)), where the mixer is a delta rule or attention."""

    delta_net = DeltaNet

    def __init__(self, config: Config, layer: int) -> None:
        if config.linear[layer]:
            self.linear_attn = self.delta_net(config, layer)
        else:
            self.self_attn = GatedAttention(config, layer)
        if config.sparse[layer]:
            assert config.experts is not None
            self.mlp = MixtureOfExperts(config, config.experts)
        else:
            self.mlp = GatedMLP(config)
        self.linear = config.linear[layer]
        norms = config.hidden_size, config.norm_eps, config.norm_offset
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(*norms), RMSNorm(*norms)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        normed = self.input_layernorm(x)
        x = x + (self.linear_attn(normed) if self.linear else self.self_attn(normed, table))
        return x + self.mlp(self.post_attention_layernorm(x))


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a Qwen3NextForCausalLM."""
    fields = common_fields(hf, "qwen3_next")
    layers = fields["num_layers"]
    bias = bool(hf.get("attention_bias", False))
    sparse = (False,) * layers
    if hf["num_experts"] != 0:
        sparse = qwen3_moe.sparse_layers(hf, layers)
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        norm_offset=1.0,
        ignored=(r"^mtp\.",),
        delta=delta_of(hf),
        taps=require(hf, "linear_conv_kernel_dim"),
        linear=linear_layers(hf, layers),
        sparse=sparse,
        experts=_experts(hf) if any(sparse) else None,
    )


def delta_of(hf: HfConfig) -> DeltaShape:
    """The shape of the delta rule. Raises CheckpointError."""
    k_heads, v_heads = require(hf, "linear_num_key_heads"), require(hf, "linear_num_value_heads")
    if v_heads % k_heads:
        raise refuse("linear_num_value_heads", f"a multiple of the {k_heads} key heads", v_heads)
    widths = require(hf, "linear_key_head_dim"), require(hf, "linear_value_head_dim")
    return DeltaShape(k_heads, v_heads, *widths)


def linear_layers(hf: HfConfig, layers: int) -> tuple[bool, ...]:
    """Which layers have a state: `layer_types`, or all but every `full_attention_interval`-th."""
    types = hf.get("layer_types")
    if types is None:
        every = require(hf, "full_attention_interval")
        return tuple((i + 1) % every != 0 for i in range(layers))
    if not isinstance(types, list) or len(types) != layers:
        raise refuse("layer_types", f"a list of {layers}, one for each layer", types)
    for kind in types:
        if kind not in _ATTENTION:
            raise refuse("layer_types", f"made of {' and '.join(_ATTENTION)}", kind)
    return tuple(kind == _ATTENTION[0] for kind in types)


def _experts(hf: HfConfig) -> Experts:
    count = count_of(hf, "num_experts")
    return Experts(
        count=count,
        chosen=chosen_of(hf, count),
        inner=require(hf, "moe_intermediate_size"),
        normalise=bool(hf["norm_topk_prob"]),
        shared=require(hf, "shared_expert_intermediate_size"),
        shared_gate=True,
    )


def _neighbours(*sizes: int) -> Sequence[tuple[int, int]]:
    """(begin, size) of parts that lie side by side."""
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
