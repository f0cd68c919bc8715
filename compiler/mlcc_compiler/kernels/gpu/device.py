"""A GPU as kernels see it: the limits of a target's row, never its name."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_targets import Target

MOST_THREADS = 256
"""Largest workgroup; more would not help any kernel here and reduce occupancy."""


@dataclass(frozen=True)
class Gpu:
    """A device as kernels see it."""

    threads: int = MOST_THREADS
    """Threads per workgroup; a power of two."""
    shared_bytes: int = 16384
    """Workgroup memory available to one kernel."""
    binding_bytes: int = 128 << 20
    """Largest tensor per kernel argument."""
    f16: bool = True
    """Whether the device computes in float16; without it f16 weights are read as the halves of
    u32."""
    subgroup: int = 0
    """Threads per subgroup; 0 = subgroup operations may not be used."""
    larger_subgroups: bool = False
    """Whether a device's subgroups may be larger: `subgroup` neighbouring threads are in one, but
    not alone."""
    narrow_types: bool = False
    """Whether kernels may use 8-bit integers and reinterpret a u32 as two f16; WGSL has only 32-bit
    types."""
    packed_dot: bool = False
    """Whether products of few rows round x to 8 bits and multiply four of them by an instruction
    (`linear/packed_dot.py`)."""
    half_products: bool = False
    """Whether products of many rows multiply and add in float16, where the device computes in it
    (`linear/gemm.py`)."""
    matrix_unit: str = ""
    """Half-precision matrix instructions (`linear/matrix_unit.py`); "" = none."""
    fragments: bool = False
    """Whether weights are stored as `mma.m16n8k16` takes them (`linear/fragments/order.py`)."""
    warp_groups: bool = False
    """Whether groups of four warps multiply by `wgmma` (`linear/fragments/warp_group.py`)."""
    fp8: bool = False
    """Whether weights that are 8-bit floats multiply activations rounded to 8-bit floats
    (`linear/fragments/fp8_rows.py`)."""
    row_slices: int = 640
    """Largest number of slices of a row of logits in sampling: workgroup memory lists them."""
    activation_dtype: str = "float32"
    """Dtype of the activations between operators."""

    @classmethod
    def of(cls, target: Target) -> Gpu:
        """The device of a row."""
        limits = target.limits
        return cls(
            threads=min(MOST_THREADS, limits["workgroup_invocations"]),
            shared_bytes=limits["workgroup_bytes"],
            binding_bytes=limits["storage_binding_bytes"],
            f16=target.f16,
            subgroup=limits.get("subgroup", 0) or limits.get("least_subgroup", 0),
            larger_subgroups="least_subgroup" in limits,
            narrow_types=target.f16 and bool(limits.get("narrow_types", 0)),
            matrix_unit=target.matrix_unit,
            fragments=bool(limits.get("mma", 0)),
            warp_groups=bool(limits.get("wgmma", 0)),
            row_slices=limits.get("row_slices", cls.row_slices),
            activation_dtype=target.activation_dtype,
        )
