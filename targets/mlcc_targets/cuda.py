"""Target `cuda`: NVIDIA GPUs, through TVM's CUDA generator, several architectures in one library.

A library has machine code for each architecture, so the serving machine needs no compiler, and PTX
of the oldest one, which the driver translates for later architectures. sm_90a is sm_90 with what
no other architecture has: a library for it has nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.util.machine import machine
from mlcc_targets.linking.native_library import link_for
from mlcc_targets.target import Choices, Target, TargetError

KNOWN = (  # architectures of CUDA 13.0, oldest first
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a",
    "sm_100", "sm_103", "sm_110", "sm_120", "sm_121",
)  # fmt: skip
DEFAULT = ("sm_80", "sm_86", "sm_89", "sm_90")
"""A100; RTX 30; RTX 40 and L4; H100 and H200. Others run the PTX of the first."""


WITH_WGMMA = {"sm_90a"}
"""Architectures with wgmma, whose code runs on no other: on an H100 or H200 alone."""
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
            "e4m3": 1,
            "fp8_kv": 1,
            "wgmma": int(set(archs) <= WITH_WGMMA),
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
    if (alone := set(names) & WITH_WGMMA) and len(set(names)) > 1:
        (name,) = alone
        raise TargetError(
            f"code for {name} runs on no other architecture; use --arch {name} by itself, or "
            f"{name[:-1]} in its place, which has slower products of prompts"
        )
    return tuple(name for name in KNOWN if name in names)
