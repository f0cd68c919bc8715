"""The Mamba 2 mixer (Dao and Gu, 2024), also used by hybrid models: project, convolve over time,
scan, gate, normalise, project. The architectures' files decide which layers have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.ir.states import ConvShape, ScanShape
from mlcc_compiler.models import ops
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import Convolution, Linear

_MOST_TAPS = 64
"""Limit, as kernels unroll the taps."""


@dataclass(frozen=True, kw_only=True)
class Mamba:
    """Sizes and switches of a mixer."""

    scan: ScanShape
    taps: int
    activation: str
    """Activation after the convolution."""
    bias: bool
    """Whether the first projection has a bias."""
    output_bias: bool
    conv_bias: bool
    norm_groups: int | None
    """Groups of the gated output that are normalised separately; None = no norm."""
    norm_eps: float
    norm_first: bool = False
    """Whether the norm comes before the gate."""
    scales: tuple[float, ...] = ()
    """Factors of the first projection's outputs: gate, x, B, C and time step (muP)."""

    @property
    def conv(self) -> ConvShape:
        """Shape of the convolution over x, B and C."""
        return ConvShape(self.scan.channels, self.taps, self.activation, self.conv_bias)

    @property
    def parts(self) -> tuple[int, int, int]:
        """Sizes of the gate, the convolved part, and the time steps."""
        return self.scan.inner, self.scan.channels, self.scan.heads


class GatedNorm(nn.Module):
    """RMSNorm of each group of columns, times one weight vector."""

    def __init__(self, size: int, groups: int, eps: float) -> None:
        self.weight = nn.Parameter((size,), "float32")
        self.groups, self.eps = groups, eps

    def forward(self, x: Tensor) -> Tensor:
        rows, size = x.shape
        if self.groups == 1:
            return ops.rms_norm(x, self.weight, self.eps, 0.0)
        width = size // self.groups
        ones = nn.Tensor(_expr=relax.const(np.ones(width, np.float32), "float32"))
        grouped = nn.op.reshape(x, (rows, self.groups, width))
        normed = ops.rms_norm(grouped, ones, self.eps, 0.0)
        return ops.scale_columns(nn.op.reshape(normed, (rows, size)), self.weight)


class Mixer(nn.Module):
    """x [n, hidden] -> the same shape; `layer` is the number of the state."""

    def __init__(self, hidden: int, numbers: Mamba, layer: int) -> None:
        scan = numbers.scan
        self.numbers, self.layer = numbers, layer
        self.in_proj = Linear(hidden, sum(numbers.parts), numbers.bias)
        self.conv1d = Convolution(scan.channels, numbers.taps, numbers.conv_bias)
        self.dt_bias, self.A_log, self.D = (
            nn.Parameter((scan.heads,), "float32") for _ in range(3)
        )
        if numbers.norm_groups is not None:
            self.norm = GatedNorm(scan.inner, numbers.norm_groups, numbers.norm_eps)
        self.out_proj = Linear(scan.inner, hidden, numbers.output_bias)

    def forward(self, x: Tensor) -> Tensor:
        numbers, scan = self.numbers, self.numbers.scan
        projected = self.in_proj(x)
        if numbers.scales:
            projected = ops.scale_columns(projected, _columns(numbers))
        gate, xbc, dt = split(projected, numbers.parts)
        xbc = ops.causal_conv(xbc, self.conv1d.weight, self.conv1d.bias, self.layer, numbers.conv)
        y = ops.selective_scan(xbc, dt, self.A_log, self.D, self.dt_bias, self.layer, scan)
        y = nn.op.reshape(y, (x.shape[0], scan.inner))
        if numbers.norm_groups is None:
            y = ops.gated(gate, y, "silu")
        elif numbers.norm_first:
            y = ops.gated(gate, self.norm(y), "silu")
        else:
            y = self.norm(ops.gated(gate, y, "silu"))
        return self.out_proj(y)


def split(x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Columns of x as separate tensors of these sizes."""
    begins = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        ops.take_parts(x, 1, [(begin, size)]) for begin, size in zip(begins, sizes, strict=True)
    ]


def scan_of(hf: HfConfig, heads: str, head_dim: str, groups: str, state: str) -> ScanShape:
    """The scan's shape, by an architecture's field names. Raises CheckpointError."""
    count, shared = require(hf, heads), require(hf, groups)
    if count % shared:
        raise refuse(groups, f"a divisor of the {count} heads", shared)
    shortest, longest = time_limits(hf.get("time_step_limit"))
    return ScanShape(count, require(hf, head_dim), shared, require(hf, state), shortest, longest)


def mixer_of(hf: HfConfig, inner: int, fields: dict[str, Any]) -> Mamba:
    """The mixer, by the field names of Granite 4 and Falcon-H1."""
    if hf["mamba_d_head"] == "auto":
        hf = {**hf, "mamba_d_head": inner // require(hf, "mamba_n_heads")}
    scan = scan_of(hf, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state")
    if scan.inner != inner:
        raise refuse("mamba_d_head", f"what makes {scan.heads} heads {inner}", scan.head_dim)
    bias = bool(hf["mamba_proj_bias"])
    return Mamba(
        scan=scan,
        taps=taps_of(hf, "mamba_d_conv"),
        activation=fields["activation"],
        bias=bias,
        output_bias=bias,
        conv_bias=bool(hf["mamba_conv_bias"]),
        norm_groups=scan.groups,
        norm_eps=fields["norm_eps"],
    )


def taps_of(hf: HfConfig, key: str) -> int:
    """Tokens that a convolution sees; all but one are kept as state. Raises CheckpointError."""
    taps = require(hf, key)
    if not 2 <= taps <= _MOST_TAPS:
        raise refuse(key, f"from 2 to {_MOST_TAPS}", taps)
    return taps


def time_limits(limits: Any) -> tuple[float, float | None]:
    """(smallest, largest) time step; (0, infinity), the usual value, is (0, None)."""
    if limits is None:
        return 0.0, None
    if not isinstance(limits, (list, tuple)) or len(limits) != 2:
        raise refuse("time_step_limit", "two numbers", limits)
    shortest, longest = (_number(value) for value in limits)
    if not 0 <= shortest < longest:
        raise refuse("time_step_limit", "two numbers from 0 on, the smaller first", limits)
    return shortest, None if longest == float("inf") else longest


def _number(value: Any) -> float:
    """config.json spells infinity as Python's number or in words."""
    words = isinstance(value, str) and value.lower() in ("inf", "infinity")
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    # transformers 5 writes {"__float__": "Infinity"}
    boxed = isinstance(value, dict) and value.get("__float__") == "Infinity"
    if not (words or plain or boxed):
        raise refuse("time_step_limit", "two numbers", value)
    return float(value) if plain else float("inf")


def _columns(numbers: Mamba) -> Tensor:
    """The factor of each column of the first projection's output."""
    scan = numbers.scan
    vectors = scan.groups * scan.state
    sizes = scan.inner, scan.inner, vectors, vectors, scan.heads
    factors = np.repeat(np.array(numbers.scales, np.float32), sizes)
    return nn.Tensor(_expr=relax.const(factors, "float32"))
