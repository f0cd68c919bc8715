"""Target `android`: Android phones: arm64 host code, WGSL kernels."""

from __future__ import annotations

from functools import partial

from mlcc_targets.elf import link_model
from mlcc_targets.target import Choices, Target
from mlcc_targets.wgsl import LIMITS, computes_f16

# Android 15's devices may have pages of 16 KiB; Google Play asks for it.
_PAGES = ("-z", "max-page-size=16384")
_SYSTEM = ("libm.so", "libc.so")
"""Android looks symbols up in the libraries that a library names, so it must name these."""


def target(choices: Choices) -> Target:
    """The row."""
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
        link=partial(link_model, arch="aarch64", needed=_SYSTEM, options=_PAGES),
        run_missing="runs in an Android app; see docs/devices.md",
    )
