"""Target `vulkan`: AMD, Intel and NVIDIA GPUs: WGSL kernels run natively through wgpu."""

from __future__ import annotations

from mlcc_targets.target import Target


def target(cpu: str = "host") -> Target:
    """The row; its kernels and link step are still to come."""
    return Target(
        name="vulkan",
        device="vulkan",
        kernels="gpu",
        arch="x86_64",
        triple="",
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
