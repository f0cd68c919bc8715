"""Target `webgpu`: WGSL kernels, host code and TVM's runtime as wasm, for browser tabs."""

from __future__ import annotations

from dataclasses import replace

from mlcc_targets.target import Choices, Target, TargetError
from mlcc_targets.wasm.build import runtime
from mlcc_targets.wasm.link import link_wasm, mark_abi
from mlcc_targets.wgsl import LIMITS

SUBGROUP = 32
"""Threads of a subgroup of GPUs with matrices: Apple's and NVIDIA's. Both also have 32 KiB of
workgroup memory."""


def target(choices: Choices) -> Target:
    """The row. Default: float16, with a float32 alternative for browsers without it, which takes no
    packed products either. With subgroup matrices, both are alternatives. Raises TargetError."""
    if choices.f16 is not None and not choices.subgroup_matrices:
        return _row(choices.f16)
    plain = replace(_row(False), variant="f32", library="model.f32.wasm", packed_dot=False)
    if not choices.subgroup_matrices:
        return replace(_row(True), alternatives=(plain,))
    if choices.f16 is False:
        raise TargetError("subgroup matrices are of float16; leave out --no-f16")
    without = replace(_row(True), variant="f16", library="model.f16.wasm")
    return replace(_with_matrices(choices.subgroup_matrices), alternatives=(without, plain))


def _with_matrices(edge: int) -> Target:
    limits = {**LIMITS, "workgroup_bytes": 32768, "subgroup": SUBGROUP, "subgroup_matrix": edge}
    return replace(_row(True), limits=limits, matrix_unit=f"subgroup_matrix{edge}x{edge}")


def _row(f16: bool) -> Target:
    return Target(
        name="webgpu",
        device="webgpu",
        kernels="gpu",
        generator="webgpu",
        arch="wasm32",
        triple="wasm32-unknown-unknown-wasm",
        library="model.wasm",
        limits=LIMITS,
        f16=f16,
        packed_dot=True,
        link=link_wasm,
        prepare=runtime,
        mark=mark_abi,
        opened_by="open it in a browser: mlcc serve",
        run_missing="runs in a browser tab: mlcc serve FOLDER",
    )
