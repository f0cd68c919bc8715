"""One file per target: a data row and how to link. Imports nothing of TVM or of mlcc."""

from __future__ import annotations

from collections.abc import Callable

from mlcc_targets import android, cpu, cuda, ios, metal, reference, vulkan, webgpu
from mlcc_targets.target import Target, TargetError

TARGETS: dict[str, Callable[..., Target]] = {
    "cpu": cpu.target,
    "cuda": cuda.target,
    "vulkan": vulkan.target,
    "metal": metal.target,
    "webgpu": webgpu.target,
    "android": android.target,
    "ios": ios.target,
    "reference": reference.target,
}


def get_target(name: str, cpu: str = "host") -> Target:
    """A target's row by name. Raises TargetError for an unknown name or CPU level."""
    if name not in TARGETS:
        raise TargetError(f"unknown target '{name}'; use one of: {', '.join(TARGETS)}")
    return TARGETS[name](cpu)


__all__ = ["TARGETS", "Target", "TargetError", "get_target"]
