"""The records of operators that keep a state a sequence: what stays of it is of one size, however
long it is. States are float32 whatever the dtype of pages: a rounding would stay in them for good.

As low as `layout`: data, from models to kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.engine.batch.tables import CacheGroup
from mlcc_compiler.ir.caches import CacheSpec, CacheTensor, StateRecord


@dataclass(frozen=True)
class ConvShape(StateRecord):
    """A depthwise convolution over time that sees a token and the `taps` - 1 before it."""

    operator: ClassVar = "causal_conv"
    tensors: ClassVar = ("conv",)
    channels: int
    taps: int
    activation: str = "silu"
    """Behind it, of those that elementwise operators have."""
    bias: bool = False
    """Whether a number of each channel is added."""

    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """The inputs that later tokens see, the oldest first."""
        return _state(CacheTensor("conv", (self.taps - 1, self.channels), "float32"))


@dataclass(frozen=True)
class DeltaShape(StateRecord):
    """The gated delta rule of one layer (Yang et al., 2024), or Kimi Delta Attention (Kimi Team,
    2025), which forgets `by_channel`; `k_heads` divides `v_heads`."""

    operator: ClassVar = "delta_rule"
    tensors: ClassVar = ("delta",)
    k_heads: int
    """Heads of queries and keys, each of which serves v_heads / k_heads neighbours."""
    v_heads: int
    k_dim: int
    v_dim: int
    eps: float = 1e-6
    """Under the root, where queries and keys are made of length 1."""
    by_channel: bool = False
    """Whether each of a head's `k_dim` keys is forgotten at a speed of its own."""

    @property
    def channels(self) -> int:
        """q, k and v side by side."""
        return 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim

    @property
    def speeds(self) -> int:
        """Numbers a token that say how much is forgotten."""
        return self.v_heads * (self.k_dim if self.by_channel else 1)

    @property
    def group(self) -> int:
        """Value heads that share a key head."""
        return self.v_heads // self.k_heads

    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """The transposed matrix of each head: a row for each value, along the keys."""
        return _state(CacheTensor("delta", (self.v_heads, self.v_dim, self.k_dim), "float32"))


@dataclass(frozen=True)
class ScanShape(StateRecord):
    """The selective scan of Mamba 2 (Dao and Gu, 2024) of one layer; `groups` divides `heads`."""

    operator: ClassVar = "selective_scan"
    tensors: ClassVar = ("scan",)
    heads: int
    head_dim: int
    groups: int
    """Of heads that share an input and an output vector, side by side."""
    state: int
    """Numbers kept for each of a head's `head_dim`."""
    shortest: float = 0.0
    """The least and the greatest step of time; None = any."""
    longest: float | None = None

    @property
    def inner(self) -> int:
        """Numbers of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """x of all heads, then the input vectors of all groups, then the output vectors."""
        return self.inner + 2 * self.groups * self.state

    @property
    def group(self) -> int:
        """Heads of a group."""
        return self.heads // self.groups

    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """The matrix of each head: a row for each of its numbers, along the state."""
        return _state(CacheTensor("scan", (self.heads, self.head_dim, self.state), "float32"))


def _state(tensor: CacheTensor) -> CacheSpec:
    return CacheSpec(CacheGroup("state"), (tensor,))
