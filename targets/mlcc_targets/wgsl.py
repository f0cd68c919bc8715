"""Shared by the rows with WGSL kernels: limits of devices, and float16."""

from __future__ import annotations

LIMITS = {
    "workgroup_invocations": 256,
    "workgroup_bytes": 16384,
    "storage_binding_bytes": 128 << 20,
    "row_slices": 640,
}
"""WebGPU's defaults, so that one library serves every adapter."""
DESKTOP = {
    "workgroup_invocations": 256,
    "workgroup_bytes": 32768,
    "storage_binding_bytes": 1 << 30,
    "row_slices": 1024,
    "least_subgroup": 8,
}
"""What Vulkan drivers of desktop GPUs have at least: AMD's, Intel's and NVIDIA's. They also start
1024 threads, which no kernel here would use."""


def computes_f16(choice: bool | None) -> bool:
    """float16 unless refused: most current browsers, phones and desktop drivers support it."""
    return choice is not False
