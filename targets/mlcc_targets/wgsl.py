"""Shared by the rows with WGSL kernels: WebGPU's guaranteed limits, in f16 or f32."""

from __future__ import annotations

LIMITS = {
    "workgroup_invocations": 256,
    "workgroup_bytes": 16384,
    "storage_binding_bytes": 128 << 20,
    "row_slices": 640,
}
"""WebGPU's defaults, so that one library serves every adapter."""


def computes_f16(choice: bool | None) -> bool:
    """float16 unless refused: most current browsers, phones and desktop drivers support it."""
    return choice is not False
