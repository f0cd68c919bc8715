"""Targets, one per file: a data row and a link function. Imports no TVM; of mlcc only `machine`."""

from __future__ import annotations

from collections.abc import Callable

from mlcc_targets import android, cpu, cuda, ios, metal, reference, vulkan, webgpu
from mlcc_targets.target import Choices, Target, TargetError

_DEFAULT = Choices()

TARGETS: dict[str, Callable[[Choices], Target]] = {
    "cpu": cpu.target,
    "cuda": cuda.target,
    "vulkan": vulkan.target,
    "metal": metal.target,
    "webgpu": webgpu.target,
    "android": android.target,
    "ios": ios.target,
    "reference": reference.target,
}


def get_target(name: str, choices: Choices = _DEFAULT) -> Target:
    """A target's row by name. Raises TargetError for unknown names and unsupported choices."""
    if name not in TARGETS:
        raise TargetError(f"unknown target '{name}'; use one of: {', '.join(TARGETS)}")
    row = TARGETS[name](choices)
    if choices.cpu != "host" and not row.cpu:
        raise TargetError(f"target '{name}' has no CPU levels; leave out --cpu {choices.cpu}")
    if choices.systems and not row.systems:
        systems = ",".join(choices.systems)
        raise TargetError(f"target '{name}' is for one system; leave out --os {systems}")
    if choices.archs and not row.archs:
        archs = ",".join(choices.archs)
        raise TargetError(f"target '{name}' has no architectures; leave out --arch {archs}")
    if choices.abis and not row.abis:
        raise TargetError(f"target '{name}' has no ABIs; leave out --abi {','.join(choices.abis)}")
    if choices.gpu and not row.generator:
        raise TargetError(f"target '{name}' is for a CPU; leave out --gpu, or use --target android")
    if choices.webgpu_limits and row.webgpu_limits is None:
        raise TargetError(f"target '{name}' has no choice of limits; leave out --webgpu-limits")
    if choices.subgroup_matrices and "subgroup_matrix" not in row.limits:
        raise TargetError(
            f"target '{name}' has no subgroup matrices; leave out --subgroup-matrices, or use "
            "--target webgpu"
        )
    if choices.f16 is not None and row.f16 != choices.f16:
        option = "--f16" if choices.f16 else "--no-f16"
        raise TargetError(f"target '{name}' has no choice of float16; leave out {option}")
    return row


__all__ = ["TARGETS", "Choices", "Target", "TargetError", "get_target"]
