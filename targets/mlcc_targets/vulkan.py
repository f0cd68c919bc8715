"""Target `vulkan`: WGSL kernels for AMD, Intel and NVIDIA GPUs, run through wgpu-native."""

from __future__ import annotations

from mlcc.util.machine import machine
from mlcc_targets.linking.native_library import link_for
from mlcc_targets.target import Choices, Target
from mlcc_targets.wgsl import DESKTOP, LIMITS, computes_f16


def target(choices: Choices) -> Target:
    """The row: this machine's host code for any CPU of its architecture."""
    return Target(
        name="vulkan",
        device="webgpu",
        kernels="gpu",
        generator="webgpu",
        arch=machine(),
        limits=LIMITS if choices.webgpu_limits else DESKTOP,
        webgpu_limits=choices.webgpu_limits,
        f16=computes_f16(choices.f16),
        link=link_for(machine()),
    )
