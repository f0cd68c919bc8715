"""Target `cuda`: NVIDIA GPUs, through TVM's CUDA generator."""

from __future__ import annotations

from mlcc_targets.target import Target


def target(cpu: str = "host") -> Target:
    """The row; its kernels and link step are still to come."""
    return Target(
        name="cuda",
        device="cuda",
        kernels="gpu",
        arch="x86_64",
        triple="",
        library="model.so",
        limits={"workgroup_invocations": 1024, "workgroup_bytes": 49152},
        f16=True,
        missing="GPU kernels are not built yet; use --target cpu",
        run_missing="GPU kernels are not built yet; use --target cpu",
    )
