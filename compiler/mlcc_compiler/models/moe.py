"""Mixture of experts: a router chooses a few of a layer's gated MLPs for each token, and their
outputs are added up with the router's weights (Shazeer et al., 2017; Fedus et al., 2021).

Shared by all architectures; which layers have one, and its sizes, are in their files.
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
"""Experts per layer: twice the largest models' number, and the capacity of the router's kernel. A
wrong number in config.json must not make the compiler build a million of them.
"""


@dataclass(frozen=True)
class Correction:
    """A router's selection bias per expert (Wang et al., 2024), and group-limited routing."""

    least: float
    """Minimum divisor when weights are normalised to sum 1."""
    groups: int = 1
    """Groups of neighbouring experts (DeepSeek-AI, 2024) .."""
    kept: int = 1
    """.. and the number of groups that experts are chosen from."""
    best: int = 2
    """Number of a group's best experts that define its score: two together, or one."""
    bias: bool = True
    """Whether there is a bias: some routers only have groups."""
    added: float = 0.0
    """Added to that divisor, so that weights sum to slightly less than 1."""


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Sizes and switches of a mixture."""

    count: int
    chosen: int
    """Experts per token."""
    inner: int
    """Inner width of an expert."""
    normalise: bool
    """Whether the weights of the chosen experts are normalised to sum 1."""
    score: str = "softmax"
    """Score of a logit: "softmax" over all experts, or "sigmoid"."""
    correction: Correction | None = None
    """None if experts are chosen by their scores alone."""
    router_bias: bool = False
    weighs_input: bool = False
    """Whether weights multiply an expert's input instead of its output; then one expert is
    chosen."""
    biased: bool = False
    """Whether experts' matrices have biases."""
    clamped: tuple[float, float] | None = None
    """(alpha, limit) of gpt-oss's gate, replacing the config's activation."""
    scale: float = 1.0
    """Final factor of the weights."""
    shared: int = 0
    """Inner width of the shared expert, which processes every token; 0 = none."""
    gated: bool = True
    """Whether experts, including the shared one, are gated MLPs."""
    latent: int | None = None
    """Width to which tokens are projected for the experts, and back; None = no projection."""
    shared_gate: bool = False
    """Whether the shared expert's output is multiplied by a sigmoid of the input."""


def count_of(hf: HfConfig, key: str) -> int:
    """The number of experts. Raises CheckpointError."""
    count = require(hf, key)
    if count > MAX_EXPERTS:
        raise refuse(key, f"at most {MAX_EXPERTS}", count)
    return count


def chosen_of(hf: HfConfig, count: int, key: str = "num_experts_per_tok") -> int:
    """The number of experts per token, at most `count`. Raises CheckpointError."""
    chosen = require(hf, key)
    if chosen > count:
        raise refuse(key, f"at most the number of experts, {count}", chosen)
    return chosen


def correction_of(hf: HfConfig, count: int, chosen: int, least: float) -> Correction:
    """`n_group` groups, of which `topk_group` are kept. Raises CheckpointError."""
    groups, kept = require(hf, "n_group"), require(hf, "topk_group")
    if groups > 1 and (count % groups or count // groups < 2):
        raise refuse("n_group", f"groups of two or more of {count} experts", groups)
    if kept > groups or count // groups * kept < chosen:
        raise refuse("topk_group", f"groups of {groups} with {chosen} experts in them", kept)
    return Correction(least, groups, kept)


class Gate(nn.Module):
    """x @ weight.T in float32 whatever the recipe: it is small, and decides the routing."""

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
    """HF's names: `gate`, `experts.0` .., and optionally `shared_expert` with its gate.

    `shared_name`: an architecture's other name for the shared expert.
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
        """The chosen experts' outputs, side by side."""
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
        """A gated shared expert is a mixture of one expert that every token chooses."""
        output: Tensor = getattr(self, self.shared_name)(x)
        if not self.numbers.shared_gate:
            return output
        logit = getattr(self, f"{self.shared_name}_gate")(x)
        return ops.combine(output, ops.route(logit, 1, "sigmoid", False, 1.0)[1])


def _expert_products(x: Tensor, choice: Tensor, linears: Sequence[Linear], experts: int) -> Tensor:
    """The product of each token with its chosen experts' linears."""
    return ops.expert_linear(x, choice, [m.weight for m in linears], experts, linears[0].scheme)
