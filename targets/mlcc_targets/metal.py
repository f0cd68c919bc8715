"""Target `metal`: Apple GPUs on macOS, through TVM's Metal generator."""

from __future__ import annotations

from mlcc_targets.target import Choices, Target


def target(choices: Choices) -> Target:
    """The row; its kernels and link step are still to come."""
    return Target(
        name="metal",
        device="metal",
        kernels="gpu",
        generator="metal",
        arch="aarch64",
        triple="arm64-apple-macos13.0",
        library="model.dylib",
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
