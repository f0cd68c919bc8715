"""Records of operators with a recurrent state per sequence, of one size however long the sequence
is. States are float32 whatever the dtype of pages: rounding errors would accumulate.

Plain data, from models to kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.engine.batch.tables import CacheGroup
from mlcc_compiler.ir.caches import CacheSpec, CacheTensor, StateRecord


@dataclass(frozen=True)
class ConvShape(StateRecord):
    """A depthwise causal convolution over a token and the `taps` - 1 before it."""

    operator: ClassVar = "causal_conv"
    tensors: ClassVar = ("conv",)
    channels: int
    taps: int
    activation: str = "silu"
    """Name of the activation applied to the result."""
    bias: bool = False
    """Whether channels have a bias."""

    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """The last inputs that later tokens need, oldest first."""
        return _state(CacheTensor("conv", (self.taps - 1, self.channels), "float32"))


@dataclass(frozen=True)
class DeltaShape(StateRecord):
    """The gated delta rule of one layer (Yang et al., 2024), or Kimi Delta Attention (Kimi Team,
    2025), which decays `by_channel`; `k_heads` divides `v_heads`."""

    operator: ClassVar = "delta_rule"
    tensors: ClassVar = ("delta",)
    k_heads: int
    """Heads of queries and keys, each shared by v_heads / k_heads neighbouring value heads."""
    v_heads: int
    k_dim: int
    v_dim: int
    eps: float = 1e-6
    """Epsilon under the root when queries and keys are normalised to length 1."""
    by_channel: bool = False
    """Whether each of a head's `k_dim` keys has its own decay."""

    @property
    def channels(self) -> int:
        """q, k and v side by side."""
        return 2 * self.k_heads * self.k_dim + self.v_heads * self.v_dim

    @property
    def speeds(self) -> int:
        """Decay numbers per token."""
        return self.v_heads * (self.k_dim if self.by_channel else 1)

    @property
    def group(self) -> int:
        """Value heads that share a key head."""
        return self.v_heads // self.k_heads

    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """The transposed matrix of each head: a row per value, along the keys."""
        return _state(CacheTensor("delta", (self.v_heads, self.v_dim, self.k_dim), "float32"))


@dataclass(frozen=True)
class ScanShape(StateRecord):
    """The selective scan of Mamba 2 (Dao and Gu, 2024) of one layer; `groups` divides `heads`."""

    operator: ClassVar = "selective_scan"
    tensors: ClassVar = ("scan",)
    heads: int
    head_dim: int
    groups: int
    """Groups of neighbouring heads that share B and C vectors."""
    state: int
    """State size per number of a head's `head_dim`."""
    shortest: float = 0.0
    """Smallest and largest time step; None = unbounded."""
    longest: float | None = None

    @property
    def inner(self) -> int:
        """Numbers of all heads."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """x of all heads, then B of all groups, then C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def group(self) -> int:
        """Heads of a group."""
        return self.heads // self.groups

    def cache_spec(self, page_size: int, dtype: str) -> CacheSpec:
        """The matrix of each head: a row per number of the head, along the state."""
        return _state(CacheTensor("scan", (self.heads, self.head_dim, self.state), "float32"))


def _state(tensor: CacheTensor) -> CacheSpec:
    return CacheSpec(CacheGroup("state"), (tensor,))
