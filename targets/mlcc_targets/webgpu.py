"""Target `webgpu`: a browser tab: WGSL kernels, host code as wasm."""

from __future__ import annotations

from mlcc_targets.target import Target


def target(cpu: str = "host") -> Target:
    """The row; its kernels and link step are still to come."""
    return Target(
        name="webgpu",
        device="webgpu",
        kernels="gpu",
        arch="wasm32",
        triple="wasm32-unknown-unknown-wasm",
        library="model.wasm",
        limits={
            "workgroup_invocations": 256,
            "workgroup_bytes": 16384,
            "storage_binding_bytes": 128 << 20,
        },
        f16=True,
        missing="GPU kernels are not built yet; use --target cpu",
        run_missing="GPU kernels are not built yet; use --target cpu",
    )
