"""Target `android`: Android phones: arm64 host code, WGSL kernels."""

from __future__ import annotations

from mlcc_targets.target import Target


def target(cpu: str = "host") -> Target:
    """The row; its kernels and link step are still to come."""
    return Target(
        name="android",
        device="vulkan",
        kernels="gpu",
        arch="aarch64",
        triple="aarch64-linux-android",
        library="model.so",
        limits={
            "workgroup_invocations": 256,
            "workgroup_bytes": 16384,
            "storage_binding_bytes": 128 << 20,
        },
        f16=True,
        missing="GPU kernels are not built yet; use --target cpu",
        run_missing="GPU kernels are not built yet; use --target cpu",
    )
