"""Kernels by kind of device; a target's row selects the set."""

from __future__ import annotations

from mlcc.errors import UnsupportedError
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_targets import Target


def kernel_set_for(
    target: Target, activation_bits: int | None = None, rounds_rows: bool = True
) -> KernelSet:
    """The kernel set of a target's row; imported late, as building it loads TVM. `activation_bits`
    as `Plan` has them."""
    if target.kernels == "gpu":
        from mlcc_compiler.kernels.gpu.kernel_set import kernels_of as gpu

        return gpu(target, activation_bits)
    if target.kernels == "cpu":
        from mlcc_compiler.kernels.cpu.kernel_set import kernels_of as cpu

        return cpu(target, activation_bits or 8, rounds_rows)
    raise UnsupportedError(f"target '{target.name}' has no kernels; use --target cpu")
