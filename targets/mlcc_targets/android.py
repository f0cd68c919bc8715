"""Target `android`: Android phones: arm64 host code, WGSL kernels."""

from __future__ import annotations

from mlcc_targets.target import Choices, Target
from mlcc_targets.wgsl import LIMITS, computes_f16


def target(choices: Choices) -> Target:
    """The row; its link step is still to come."""
    return Target(
        name="android",
        device="webgpu",
        kernels="gpu",
        generator="webgpu",
        arch="aarch64",
        triple="aarch64-linux-android",
        library="model.so",
        limits=LIMITS,
        f16=computes_f16(choices.f16),
        missing="its link step is not built yet; use --target cpu",
        run_missing="its link step is not built yet; use --target cpu",
    )
