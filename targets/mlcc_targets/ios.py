"""Target `ios`: iPhones and iPads: a static library with Metal kernels."""

from __future__ import annotations

from mlcc_targets.target import Choices, Target


def target(choices: Choices) -> Target:
    """The row; its kernels and link step are still to come."""
    return Target(
        name="ios",
        device="metal",
        kernels="gpu",
        generator="metal",
        arch="aarch64",
        triple="arm64-apple-ios15.0",
        library="model.a",
        limits={
            "workgroup_invocations": 1024,
            "workgroup_bytes": 32768,
            "storage_binding_bytes": 1 << 32,
            "subgroup": 32,
        },
        f16=True,
        missing="its link step is not built yet; use --target cpu",
        run_missing="its link step is not built yet; use --target cpu",
    )
