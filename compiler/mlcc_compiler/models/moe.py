"""Mixtures of experts: a router chooses a few of a layer's gated MLPs for each token, and their
outputs are added up, weighted by how sure it was (Shazeer et al., 2017; Fedus et al., 2021).

For every architecture that has one: which layers, and with which numbers, is its own file's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import GatedMLP, Linear, PlainMLP

MAX_EXPERTS = 1024
"""Experts of a layer: twice what the largest models have, and what a router's kernel has room for.
A config.json with a wrong number must not make the compiler build a million of them."""


@dataclass(frozen=True)
class Correction:
    """Of scores, a bias for each expert (Wang et al., 2024), and what is chosen from."""

    least: float
    """What the weights are divided by at least, where they are made to add up to 1."""
    groups: int = 1
    """Of neighbouring experts (DeepSeek-AI, 2024) .."""
    kept: int = 1
    """.. of which so many are chosen from."""
    best: int = 2
    """How many of a group's largest say what it is worth: two together, or one."""
    bias: bool = True
    """Whether there is one: groups may be all."""
    added: float = 0.0
    """To that sum, which keeps weights a little below adding up to 1."""


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The numbers of a mixture."""

    count: int
    chosen: int
    """Of them, for a token."""
    inner: int
    """Width inside an expert."""
    normalise: bool
    """Whether the weights of the chosen are made to add up to 1."""
    score: str = "softmax"
    """What a logit says: "softmax", of all experts, or "sigmoid"."""
    correction: Correction | None = None
    """None if the scores themselves say who is chosen."""
    router_bias: bool = False
    weighs_input: bool = False
    """Weights are on what an expert reads and not on what it says; then one is chosen."""
    biased: bool = False
    """Whether experts' matrices have biases."""
    clamped: tuple[float, float] | None = None
    """(alpha, limit) of gpt-oss's gate, in place of the config's activation."""
    scale: float = 1.0
    """What the weights are multiplied with at the end."""
    shared: int = 0
    """Width inside the shared expert, which every token passes; 0 = there is none."""
    gated: bool = True
    """Whether experts, the shared one too, are gated MLPs and not plain ones."""
    latent: int | None = None
    """Width to which tokens are projected for the experts, and back from it; None = they are
    not."""
    shared_gate: bool = False
    """Whether the shared expert's output is multiplied with a sigmoid of the input."""


def count_of(hf: HfConfig, key: str) -> int:
    """The number of experts. Raises CheckpointError."""
    count = require(hf, key)
    if count > MAX_EXPERTS:
        raise refuse(key, f"at most {MAX_EXPERTS}", count)
    return count


def chosen_of(hf: HfConfig, count: int, key: str = "num_experts_per_tok") -> int:
    """How many of so many experts are for a token. Raises CheckpointError."""
    chosen = require(hf, key)
    if chosen > count:
        raise refuse(key, f"at most the number of experts, {count}", chosen)
    return chosen


def correction_of(hf: HfConfig, count: int, chosen: int, least: float) -> Correction:
    """`n_group` groups, `topk_group` of them kept. Raises CheckpointError."""
    groups, kept = require(hf, "n_group"), require(hf, "topk_group")
    if groups > 1 and (count % groups or count // groups < 2):
        raise refuse("n_group", f"groups of two or more of {count} experts", groups)
    if kept > groups or count // groups * kept < chosen:
        raise refuse("topk_group", f"groups of {groups} with {chosen} experts in them", kept)
    return Correction(least, groups, kept)


class Gate(nn.Module):
    """x @ weight.T in float32 whatever the recipe: it is small, and decides where a token goes."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = False, corrected: bool = False
    ) -> None:
        self.weight = nn.Parameter((out_features, in_features), "float32")
        self.bias = nn.Parameter((out_features,), "float32") if bias else None
        if corrected:
            self.e_score_correction_bias = nn.Parameter((out_features,), "float32")
        self.scheme = "f32"

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, self.bias, self.scheme, ops.FLOAT32)


class MixtureOfExperts(nn.Module):
    """HF's names: `gate`, `experts.0` .., and where there are such `shared_expert` with its gate.

    An architecture that calls its shared expert otherwise gives that attribute's name.
    """

    def __init__(
        self, config: DecoderConfig, experts: Experts, shared_name: str = "shared_expert"
    ) -> None:
        self.numbers, self.activation, self.shared_name = experts, config.activation, shared_name
        width = experts.latent or config.hidden_size
        inner = replace(config, hidden_size=width, intermediate_size=experts.inner, mlp_bias=False)
        corrected = experts.correction is not None and experts.correction.bias
        self.gate = Gate(config.hidden_size, experts.count, experts.router_bias, corrected)
        mlp = GatedMLP if experts.gated else PlainMLP
        self.experts = nn.ModuleList([mlp(inner) for _ in range(experts.count)])
        if experts.latent is not None:
            self.fc1_latent_proj = Linear(config.hidden_size, experts.latent, config.mlp_bias)
            self.fc2_latent_proj = Linear(experts.latent, config.hidden_size, config.mlp_bias)
        if experts.biased:
            self.gate_up_bias = nn.Parameter((2 * experts.count * experts.inner,), "float32")
            self.down_bias = nn.Parameter((experts.count * config.hidden_size,), "float32")
        if experts.shared:
            wide = replace(config, intermediate_size=experts.shared)
            setattr(self, shared_name, mlp(wide))
        if experts.shared_gate:
            setattr(self, f"{shared_name}_gate", Gate(config.hidden_size, 1))

    def forward(self, x: Tensor) -> Tensor:
        numbers = self.numbers
        choice, weights = self._route(self.gate(x))
        if numbers.weighs_input:
            mixed = self._outputs(ops.combine(x, weights), choice)
        else:
            narrow = x if numbers.latent is None else self.fc1_latent_proj(x)
            mixed = ops.combine(self._outputs(narrow, choice), weights)
            mixed = mixed if numbers.latent is None else self.fc2_latent_proj(mixed)
        return mixed + self._shared(x) if numbers.shared else mixed

    def _route(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        numbers, correction = self.numbers, self.numbers.correction
        how = (numbers.chosen, numbers.score, numbers.normalise, numbers.scale)
        if correction is None:
            return ops.route(logits, *how)
        groups = (correction.groups, correction.kept)
        if correction.bias:
            bias = self.gate.e_score_correction_bias
        else:
            zeros = np.zeros(numbers.count, np.float32)
            bias = nn.Tensor(_expr=relax.const(zeros, "float32"))
        of_sum = correction.best, correction.added
        return ops.route_corrected(logits, bias, *how, correction.least, *groups, *of_sum)

    def _outputs(self, x: Tensor, choice: Tensor) -> Tensor:
        """What the chosen say, side by side."""
        numbers, experts = self.numbers, list(self.experts)
        inner = [e.gate_proj for e in experts] if numbers.gated else []
        inner += [e.up_proj for e in experts]
        both = _expert_products(x, choice, inner, numbers.count)
        if numbers.biased:
            both = ops.add_expert_bias(both, choice, self.gate_up_bias, numbers.count, 2)
        if not numbers.gated:
            products = ops.activated(both, self.activation)
        elif numbers.clamped is None:
            products = ops.gated_fused(both, self.activation)
        else:
            products = ops.clamped_swiglu(both, *numbers.clamped)
        outputs = _expert_products(products, choice, [e.down_proj for e in experts], numbers.count)
        if numbers.biased:
            outputs = ops.add_expert_bias(outputs, choice, self.down_bias, numbers.count, 1)
        return outputs

    def _shared(self, x: Tensor) -> Tensor:
        """With a gate it is a mixture of one expert, which everybody chooses."""
        output: Tensor = getattr(self, self.shared_name)(x)
        if not self.numbers.shared_gate:
            return output
        logit = getattr(self, f"{self.shared_name}_gate")(x)
        return ops.combine(output, ops.route(logit, 1, "sigmoid", False, 1.0)[1])


def _expert_products(x: Tensor, choice: Tensor, linears: Sequence[Linear], experts: int) -> Tensor:
    """The product of each token with the chosen among equal linears."""
    return ops.expert_linear(x, choice, [m.weight for m in linears], experts, linears[0].scheme)
