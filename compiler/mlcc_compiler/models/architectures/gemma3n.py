"""Gemma 3n, text (Gemma Team, 2025): Gemma 4's shared keys and values and per-layer embeddings;
several hidden states of a token, of which a layer computes one and corrects all (AltUp; Baykal et
al., 2023); a low-rank path beside attention (LAuReL; Menghani et al., 2024); and sparse gates in
the first layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.models import ops, per_layer_embedding
from mlcc_compiler.models.architectures import gemma3, gemma4
from mlcc_compiler.models.causal_lm import LayerFactory
from mlcc_compiler.models.config import DECODER_DEFAULTS, common_fields, windows_by_type
from mlcc_compiler.models.fields import HfConfig, layer_types, optional, refuse, require
from mlcc_compiler.models.layers import GatedMLP, Linear, RMSNorm
from mlcc_compiler.models.moe import Gate

DEFAULTS = DECODER_DEFAULTS | {
    "vocab_size": 262400,
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "sliding_window": 512,
    "final_logit_softcapping": 30.0,
    "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256,
    "altup_active_idx": 0,
    "altup_correct_scale": True,
    "altup_num_inputs": 4,
    "num_kv_shared_layers": 15,
    "laurel_rank": 64,
    "activation_sparsity_pattern": None,
}
"""Sizes too: a text_config inside a multimodal config.json is written without its defaults."""
_LEAST = 1e-5
"""Minimum mean square of a projected state."""
_MOST_STATES = 16
_SPARSE, _SPARSE_LAYERS = 0.95, 10
"""Default gate sparsity, and the number of first layers that have it."""


@dataclass(frozen=True, kw_only=True)
class Config(gemma4.Config):
    """Gemma 4's fields, and those of several `states` of a token."""

    states: int
    active: int
    """The state that a layer computes."""
    scaled: bool
    """Whether the per-layer input multiplies that state times a vector."""
    laurel_rank: int
    cuts: tuple[float | None, ...]
    """Standard deviations of each layer's gate threshold; None = dense gates."""


class Laurel(nn.Module):
    """x + norm(low-rank projection of x)."""

    def __init__(self, config: Config) -> None:
        self.linear_left = Linear(config.hidden_size, config.laurel_rank)
        self.linear_right = Linear(config.laurel_rank, config.hidden_size)
        self.post_laurel_norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.post_laurel_norm(self.linear_right(self.linear_left(x)))


class MLP(GatedMLP):
    """A gated MLP with optionally sparse gates."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config.of_layer(layer))
        self.cut = config.cuts[layer]

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        gate = gate if self.cut is None else ops.above(gate, self.cut)
        return self.down_proj(ops.gated(gate, self.up_proj(x), self.activation))


class Coefficients(nn.Module):
    """A small matrix that `ops.mix` reads."""

    def __init__(self, rows: int, columns: int) -> None:
        self.weight = nn.Parameter((rows, columns), "float32")


class AltUp(nn.Module):
    """States side by side, a[n, states * hidden]: predicts a mixture of them, and corrects it by
    the layer's output for one of them."""

    def __init__(self, config: Config) -> None:
        self.states, self.active, self.hidden = config.states, config.active, config.hidden_size
        self.correct_output_scale = nn.Parameter((config.hidden_size,), "float32")
        self.correction_coefs = Coefficients(config.states, config.states)
        self.prediction_coefs = Coefficients(config.states**2, config.states)
        self.modality_router = Gate(config.hidden_size, config.states)
        self.router_norm = RMSNorm(config.hidden_size, config.norm_eps)

    def modes(self, x: Tensor) -> Tensor:
        """f32[n, states], each between -hidden and hidden."""
        return ops.softcap(self.modality_router(self.router_norm(x)), float(self.hidden))

    def one(self, states: Tensor) -> Tensor:
        """The active state."""
        return ops.take_parts(states, 1, [(self.active * self.hidden, self.hidden)])

    def predict(self, states: Tensor) -> Tensor:
        modes = self.modes(self.one(states))
        coefs = self.prediction_coefs.weight
        return states + ops.mix(states, modes, coefs, self.states, 1 / self.hidden)

    def correct(self, predicted: Tensor, layer_output: Tensor) -> Tensor:
        innovation = layer_output + self.one(predicted) * -1.0
        modes, coefs = self.modes(layer_output), self.correction_coefs.weight
        return predicted + ops.mix(innovation, modes, coefs, 1, 1 / self.hidden, 1.0)


class Layer(nn.Module):
    """Predict all states, compute one, correct all; then add the projected per-layer input to all
    but the first."""

    def __init__(self, config: Config, layer: int) -> None:
        def norm() -> RMSNorm:
            return RMSNorm(config.hidden_size, config.norm_eps)

        assert config.inputs is not None
        self.activation, self.scaled, self.states = config.activation, config.scaled, config.states
        self.self_attn, self.mlp = gemma4.Attention(config, layer), MLP(config, layer)
        self.altup, self.laurel = AltUp(config), Laurel(config)
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = norm(), norm()
        self.per_layer_input_gate = Linear(config.hidden_size, config.inputs.width)
        self.per_layer_projection = Linear(config.inputs.width, config.hidden_size)
        self.post_per_layer_input_norm = norm()

    def forward(self, states: Tensor, table: Tensor, layer_inputs: Tensor) -> Tensor:
        predicted = self.altup.predict(states)
        corrected = self.altup.correct(
            predicted, self.layer_output(self.altup.one(predicted), table)
        )
        x = self.altup.one(corrected)
        if self.scaled:
            x = ops.scale_columns(x, self.altup.correct_output_scale)
        gated = ops.gated(self.per_layer_input_gate(x), layer_inputs, self.activation)
        added = self.post_per_layer_input_norm(self.per_layer_projection(gated))
        return corrected + except_first(added, self.states)

    def layer_output(self, x: Tensor, table: Tensor) -> Tensor:
        """The layer's output for one state, a[n, hidden]."""
        normed = self.input_layernorm(x)
        beside = self.laurel(normed)
        x = x + self.post_attention_layernorm(self.self_attn(normed, table))
        x = (x + beside) * 0.5**0.5
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Stack(per_layer_embedding.Stack):
    """The stack with per-layer inputs and several states."""

    def __init__(self, config: Config, layer: LayerFactory) -> None:
        super().__init__(config, layer)
        hidden, more = config.hidden_size, range(config.states - 1)
        self.states, self.hidden = config.states, hidden
        self.altup_projections = nn.ModuleList([Linear(hidden, hidden) for _ in more])
        self.altup_unembed_projections = nn.ModuleList([Linear(hidden, hidden) for _ in more])

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        assert self.inputs is not None
        x = self.embed(token_ids)
        layer_inputs = self.layer_inputs(token_ids, x, self.inputs)
        states = one_state(x, 0, self.states)
        for i, projection in enumerate(self.altup_projections):
            state = ops.match_magnitude(projection(x), x, _LEAST)
            states = states + one_state(state, i + 1, self.states)
        return self.mean(self.run_layers(states, positions, layer_inputs))

    def mean(self, states: Tensor) -> Tensor:
        """The mean of the first state and the projected others, a[n, hidden]."""
        parts = [(i * self.hidden, self.hidden) for i in range(self.states)]
        first, *others = (ops.take_parts(states, 1, [part]) for part in parts)
        total = first
        for other, projection in zip(others, self.altup_unembed_projections, strict=True):
            total = total + ops.match_magnitude(projection(other), first, _LEAST)
        return total * (1 / self.states)


def one_state(x: Tensor, place: int, states: int) -> Tensor:
    """x a[n, hidden] as one of several states, the others zero: a[n, states * hidden]."""
    return _repeated(x, [float(i == place) for i in range(states)])


def except_first(x: Tensor, states: int) -> Tensor:
    """x as all of several states, except zeros as the first."""
    return _repeated(x, [float(i > 0) for i in range(states)])


def _repeated(x: Tensor, factors: Sequence[float]) -> Tensor:
    hidden = x.shape[1]
    columns = np.repeat(np.array(factors, np.float32), hidden)
    wide = ops.take_parts(x, 1, [(0, hidden)] * len(factors))
    return ops.scale_columns(wide, nn.Tensor(_expr=relax.const(columns, "float32")))


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json (or its `text_config`) of a Gemma3nForCausalLM."""
    inner = _inner(hf)
    widest = {**hf, "intermediate_size": max(inner)}
    fields = common_fields(widest, "gemma3n", "hidden_activation")
    layers = fields["num_layers"]
    pattern = ["sliding_attention" if (i + 1) % 5 else "full_attention" for i in range(layers)]
    types = layer_types(hf, pattern)
    kv_layers = gemma4.kv_layers_of(hf, types)
    bias, states = bool(hf.get("attention_bias", False)), require(hf, "altup_num_inputs")
    if states > _MOST_STATES:
        raise refuse("altup_num_inputs", f"at most {_MOST_STATES}", states)
    fields |= {"attention_scale": 1.0, "windows": windows_by_type(hf, types)}
    fields |= {"rope_of_layer": tuple(int(kind == "sliding_attention") for kind in types)}
    inputs = per_layer_embedding.inputs_of({**hf, "pad_token_id": 0})  # of sound and images
    if inputs is None:
        raise refuse("hidden_size_per_layer_input", "a width", hf["hidden_size_per_layer_input"])
    return Config(
        **fields,
        ropes=(gemma3.global_rope(hf, context), gemma3.local_rope(hf, context)),
        qk_norm=True,
        qkv_bias=bias,
        output_bias=bias,
        embed_scale=fields["hidden_size"] ** 0.5,
        final_softcap=optional(hf, "final_logit_softcapping"),
        ignored=gemma4.unused_kv([kv_layer != i for i, kv_layer in enumerate(kv_layers)]),
        head_dims=(fields["head_dim"],) * layers,
        kv_heads=(fields["num_kv_heads"],) * layers,
        kv_layers=kv_layers,
        key_is_value=(False,) * layers,
        inner=inner,
        inputs=inputs,
        experts=None,
        states=states,
        active=_active(hf, states),
        scaled=bool(hf["altup_correct_scale"]),
        laurel_rank=require(hf, "laurel_rank"),
        cuts=_cuts(hf, layers),
    )


def _inner(hf: HfConfig) -> tuple[int, ...]:
    """The inner width of each layer's MLP: one for all, or a list."""
    layers, given = require(hf, "num_hidden_layers"), hf["intermediate_size"]
    if not isinstance(given, list):
        return (require(hf, "intermediate_size"),) * layers
    if len(given) != layers:
        raise refuse("intermediate_size", f"a list of {layers}, one for each layer", given)
    return tuple(require({"intermediate_size": width}, "intermediate_size") for width in given)


def _active(hf: HfConfig, states: int) -> int:
    active: Any = hf["altup_active_idx"]
    if isinstance(active, bool) or not isinstance(active, int) or not 0 <= active < states:
        raise refuse("altup_active_idx", f"one of {states} states", active)
    return active


def _cuts(hf: HfConfig, layers: int) -> tuple[float | None, ...]:
    """Thresholds for the gate sparsity, assuming a normal distribution."""
    given = hf["activation_sparsity_pattern"]
    if given is None:
        first = _SPARSE_LAYERS if layers > _SPARSE_LAYERS else 0
        given = [_SPARSE] * first + [0.0] * (layers - first)
    if not isinstance(given, list) or len(given) != layers:
        raise refuse("activation_sparsity_pattern", f"a list of {layers}", given)
    for part in given:
        if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 <= part < 1:
            raise refuse("activation_sparsity_pattern", "made of parts below 1", part)
    return tuple(NormalDist().inv_cdf(np.float32(part)) if part > 0 else None for part in given)
