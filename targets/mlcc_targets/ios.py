"""Target `ios`: a static library with Metal kernels, for iPhones and iPads."""

from __future__ import annotations

from mlcc_targets.apple import IOS, LIMITS, link_static
from mlcc_targets.linking.static import HEADER
from mlcc_targets.target import Choices, Target


def target(choices: Choices) -> Target:
    """The row. Apps may load only linked code, so the library is an archive."""
    return Target(
        name="ios",
        device="metal",
        kernels="gpu",
        generator="metal",
        arch="aarch64",
        triple=f"arm64-apple-ios{IOS}",
        library="model.a",
        extra_files=(HEADER,),
        symbol_prefix="mlcc_",
        limits=LIMITS,
        f16=True,
        link=link_static,
        run_missing="runs in an iOS app; see docs/devices.md",
    )
