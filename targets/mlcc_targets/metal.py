"""Target `metal`: Apple GPUs on macOS, through TVM's Metal generator."""

from __future__ import annotations

import sys

from mlcc.util.machine import machine
from mlcc_targets.apple import LIMITS, MACOS, link_dylib
from mlcc_targets.target import Choices, Target


def target(choices: Choices) -> Target:
    """The row. The Mac's driver compiles the MSL when the library is loaded."""
    here = sys.platform == "darwin" and machine() == "aarch64"
    return Target(
        name="metal",
        device="metal",
        kernels="gpu",
        generator="metal",
        arch="aarch64",
        triple=f"arm64-apple-macos{MACOS}",
        library="model.dylib",
        limits=LIMITS,
        matrix_unit="simdgroup",
        f16=True,
        link=link_dylib,
        run_missing=""
        if here
        else "runs on a Mac with Apple silicon (untried); see docs/devices.md",
    )
