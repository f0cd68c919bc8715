"""Kernels by kind of device; a target's row says which set it uses."""

from __future__ import annotations

from mlcc.errors import UnsupportedError
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_targets import Target


def kernel_set_for(target: Target) -> KernelSet:
    """The kernels for a target's row. Raises UnsupportedError if they are still to come."""
    if target.kernels != "cpu":
        raise UnsupportedError(f"target '{target.name}': its kernels are not built yet")
    from mlcc_compiler.kernels.cpu.kernel_set import CpuKernels

    return CpuKernels(target)
