"""Target `cuda`: NVIDIA GPUs, through TVM's CUDA generator, several architectures in one library.

A library has machine code for each architecture, so the serving machine needs no compiler, and PTX
of the oldest one, which the driver translates for later architectures.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.util.machine import machine
from mlcc_targets.linking.native_library import link_for
from mlcc_targets.target import Choices, Target, TargetError

KNOWN = (  # architectures of CUDA 13.0, oldest first
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90",
    "sm_100", "sm_103", "sm_110", "sm_120", "sm_121",
)  # fmt: skip
DEFAULT = ("sm_80", "sm_86", "sm_89", "sm_90")
"""A100; RTX 30; RTX 40 and L4; H100 and H200. Others run the PTX of the first."""


WITHOUT_MMA = {"sm_75"}
"""Architectures without mma.m16n8k16; a library for one of them does without."""


def target(choices: Choices) -> Target:
    """The row: this machine's host code for any CPU of its architecture."""
    archs = architectures(choices.archs or DEFAULT)
    return Target(
        name="cuda",
        device="cuda",
        kernels="gpu",
        generator="cuda",
        archs=archs,
        arch=machine(),
        limits={
            "workgroup_invocations": 1024,
            "workgroup_bytes": 49152,
            "storage_binding_bytes": 1 << 40,
            "row_slices": 1024,
            "subgroup": 32,
            "narrow_types": 1,
            "mma": int(not set(archs) & WITHOUT_MMA),
        },
        matrix_unit="wmma",
        f16=True,
        max_batch=256,
        max_step_tokens=2048,
        graphs=True,
        link=link_for(machine()),
    )


def architectures(names: Sequence[str]) -> tuple[str, ...]:
    """Known names, oldest first, each once. Raises TargetError."""
    for name in names:
        if name not in KNOWN:
            raise TargetError(
                f"unknown architecture '{name}'; use --arch with some of: {','.join(KNOWN)}"
            )
    return tuple(name for name in KNOWN if name in names)
