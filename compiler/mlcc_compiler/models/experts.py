"""Mixtures of experts: a router chooses a few of a layer's gated MLPs for each token, and their
outputs are added up, weighted by how sure it was (Shazeer et al., 2017; Fedus et al., 2021).

For every architecture that has one: which layers, and with which numbers, is its own file's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mlcc_compiler._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import GatedMLP, Linear

MOST = 1024
"""Experts of a layer: twice what the largest models have, and what a router's kernel has room for.
A config.json with a wrong number must not make the compiler build a million of them."""


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
    scale: float = 1.0
    """What the weights are multiplied with at the end."""
    shared: int = 0
    """Width inside the shared expert, which every token passes; 0 = there is none."""
    shared_gate: bool = False
    """Whether the shared expert's output is multiplied with a sigmoid of the input."""


def count_of(hf: HfConfig, key: str) -> int:
    """The number of experts. Raises CheckpointError."""
    count = require(hf, key)
    if count > MOST:
        raise refuse(key, f"at most {MOST}", count)
    return count


def chosen_of(hf: HfConfig, count: int) -> int:
    """`num_experts_per_tok`, of so many experts. Raises CheckpointError."""
    chosen = require(hf, "num_experts_per_tok")
    if chosen > count:
        raise refuse("num_experts_per_tok", f"at most the number of experts, {count}", chosen)
    return chosen


class Gate(nn.Module):
    """x @ weight.T in float32 whatever the recipe: it is small, and decides where a token goes."""

    def __init__(self, in_features: int, out_features: int) -> None:
        self.weight = nn.Parameter((out_features, in_features), "float32")
        self.scheme = "f32"

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, None, self.scheme, ops.FLOAT32)


class MixtureOfExperts(nn.Module):
    """HF's names: `gate`, `experts.0` .., and where there are such `shared_expert` with its gate.

    An architecture that calls its shared expert otherwise gives that attribute's name.
    """

    def __init__(
        self, config: DecoderConfig, experts: Experts, shared_name: str = "shared_expert"
    ) -> None:
        self.numbers, self.activation, self.shared_name = experts, config.activation, shared_name
        inner = replace(config, intermediate_size=experts.inner)
        self.gate = Gate(config.hidden_size, experts.count)
        self.experts = nn.ModuleList([GatedMLP(inner) for _ in range(experts.count)])
        if experts.shared:
            wide = replace(config, intermediate_size=experts.shared)
            setattr(self, shared_name, GatedMLP(wide))
        if experts.shared_gate:
            setattr(self, f"{shared_name}_gate", Gate(config.hidden_size, 1))

    def forward(self, x: Tensor) -> Tensor:
        numbers, experts = self.numbers, list(self.experts)
        choice, weights = ops.route(
            self.gate(x), numbers.chosen, "softmax", numbers.normalise, numbers.scale
        )
        inner = [e.gate_proj for e in experts] + [e.up_proj for e in experts]
        both = _through(x, choice, inner, numbers.count)
        products = ops.gated_fused(both, self.activation)
        outputs = _through(products, choice, [e.down_proj for e in experts], numbers.count)
        mixed = ops.combine(outputs, weights)
        return mixed + self._shared(x) if numbers.shared else mixed

    def _shared(self, x: Tensor) -> Tensor:
        """With a gate it is a mixture of one expert, which everybody chooses."""
        output: Tensor = getattr(self, self.shared_name)(x)
        if not self.numbers.shared_gate:
            return output
        logit = getattr(self, f"{self.shared_name}_gate")(x)
        return ops.combine(output, ops.route(logit, 1, "sigmoid", False, 1.0)[1])


def _through(x: Tensor, choice: Tensor, linears: Sequence[Linear], experts: int) -> Tensor:
    """The product of each token with the chosen among equal linears."""
    return ops.expert_linear(x, choice, [m.weight for m in linears], experts, linears[0].scheme)
