"""What GPU kernels may assume of a device: the limits of a target's row, never its name."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_targets import Target

MOST_THREADS = 256
"""Threads of a workgroup; more would help no kernel here and hurt occupancy."""


@dataclass(frozen=True)
class Gpu:
    """A device as kernels see it."""

    threads: int = MOST_THREADS
    """Threads that kernels put in a workgroup; a power of two."""
    shared_bytes: int = 16384
    """Workgroup memory that one kernel may take."""
    binding_bytes: int = 128 << 20
    """The largest tensor that one argument of a kernel may hold."""
    f16: bool = True
    """The device computes in float16; without it f16 weights are read as the halves of u32."""
    subgroup: int = 0
    """Threads that exchange registers; 0 = none may be assumed."""
    narrow_types: bool = False
    """Kernels may name 8-bit integers and reinterpret a u32 as two f16; WGSL has only 32 bits."""
    tensor_cores: bool = False
    """16x16x16 half-precision matrix instructions."""
    row_slices: int = 640
    """The most slices that a row of logits is cut in for sampling: workgroup memory lists them."""
    activation_dtype: str = "float32"
    """What operators hand to one another."""

    @classmethod
    def of(cls, target: Target) -> Gpu:
        """The device of a row."""
        limits = target.limits
        return cls(
            threads=min(MOST_THREADS, limits["workgroup_invocations"]),
            shared_bytes=limits["workgroup_bytes"],
            binding_bytes=limits["storage_binding_bytes"],
            f16=target.f16,
            subgroup=limits.get("subgroup", 0),
            narrow_types=target.f16 and bool(limits.get("narrow_types", 0)),
            tensor_cores=bool(limits.get("tensor_cores", 0)),
            row_slices=limits.get("row_slices", cls.row_slices),
            activation_dtype=target.activation_dtype,
        )
