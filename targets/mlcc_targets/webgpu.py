"""Target `webgpu`: a browser tab: WGSL kernels, host code as wasm."""

from __future__ import annotations

from mlcc_targets.target import Choices, Target
from mlcc_targets.wgsl import LIMITS, computes_f16


def target(choices: Choices) -> Target:
    """The row; its link step is still to come."""
    return Target(
        name="webgpu",
        device="webgpu",
        kernels="gpu",
        generator="webgpu",
        arch="wasm32",
        triple="wasm32-unknown-unknown-wasm",
        library="model.wasm",
        limits=LIMITS,
        f16=computes_f16(choices.f16),
        missing="its link step is not built yet; use --target cpu",
        run_missing="runs in a browser tab, which is not built yet",
    )
