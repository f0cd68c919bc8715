"""Target `metal`: Apple GPUs on macOS, through TVM's Metal generator."""

from __future__ import annotations

from mlcc_targets.target import Target


def target(cpu: str = "host") -> Target:
    """The row; its kernels and link step are still to come."""
    return Target(
        name="metal",
        device="metal",
        kernels="gpu",
        arch="aarch64",
        triple="arm64-apple-macos13.0",
        library="model.dylib",
        limits={"workgroup_invocations": 1024, "workgroup_bytes": 32768},
        f16=True,
        missing="GPU kernels are not built yet; use --target cpu",
        run_missing="GPU kernels are not built yet; use --target cpu",
    )
