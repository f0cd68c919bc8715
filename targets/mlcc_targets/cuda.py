"""Target `cuda`: NVIDIA GPUs, through TVM's CUDA generator."""

from __future__ import annotations

from mlcc_targets.target import Choices, Target


def target(choices: Choices) -> Target:
    """The row; its kernels and link step are still to come."""
    return Target(
        name="cuda",
        device="cuda",
        kernels="gpu",
        generator="cuda",
        arch="x86_64",
        triple="",
        library="model.so",
        limits={
            "workgroup_invocations": 1024,
            "workgroup_bytes": 49152,
            "storage_binding_bytes": 1 << 40,
            "subgroup": 32,
            "tensor_cores": 1,
        },
        f16=True,
        missing="its link step is not built yet; use --target cpu",
        run_missing="its link step is not built yet; use --target cpu",
    )
