"""Target `webgpu`: WGSL kernels, host code and TVM's runtime as wasm, for browser tabs."""

from __future__ import annotations

from dataclasses import replace

from mlcc_targets.target import Choices, Target
from mlcc_targets.wasm.build import runtime
from mlcc_targets.wasm.link import link_wasm, mark_abi
from mlcc_targets.wgsl import LIMITS


def target(choices: Choices) -> Target:
    """The row. Default: float16, with a float32 alternative for browsers without it, which takes no
    packed products either."""
    if choices.f16 is not None:
        return _row(choices.f16)
    plain = replace(_row(False), variant="f32", library="model.f32.wasm", packed_dot=False)
    return replace(_row(True), alternatives=(plain,))


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
