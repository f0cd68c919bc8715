"""Target `android`: a library for each CPU level of phones, or WGSL kernels for the GPU.

All libraries of a folder share the weights; the runtime loads the best that the CPU supports. CPUs
and GPUs need different layouts of weights, so they have separate folders.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mlcc_targets.cpu import Level, level
from mlcc_targets.linking.elf import link_model
from mlcc_targets.target import Choices, Target, TargetError
from mlcc_targets.wgsl import LIMITS, computes_f16

ABIS = {  # ABI -> CPU levels, the best first. Arm's i8mm is left out: its kernels would multiply by
    # usdot, which is as fast as dotprod's sdot, and need another layout of 8-bit weights
    "arm64-v8a": ("arm-dotprod", "arm"),
    "x86_64": ("x86-64",),
}
_COLUMNS = 8
"""Columns of a tile of weights: two vectors of NEON or SSE2."""
_DEFAULT = ("arm64-v8a",)
# Android 15's devices may have pages of 16 KiB; Google Play requires it.
_PAGES = ("-z", "max-page-size=16384")
_SYSTEM = ("libm.so", "libc.so")
"""Android resolves symbols only in the libraries that a library names, so it names these."""


def target(choices: Choices) -> Target:
    """The row of the best library; the others are its alternatives. Raises TargetError."""
    if choices.cpu != "host":
        raise TargetError(
            f"target 'android' has a library for each kind of CPU; leave out --cpu {choices.cpu}"
        )
    abis = choices.abis or _DEFAULT
    for abi in abis:
        if abi not in ABIS:
            raise TargetError(f"no ABI '{abi}'; use --abi with one or more of: {','.join(ABIS)}")
    rows = [row for abi in dict.fromkeys(abis) for row in _rows(abi, choices)]
    first, *others = (replace(row, abis=tuple(dict.fromkeys(abis))) for row in rows)
    return replace(first, alternatives=tuple(others))


def _rows(abi: str, choices: Choices) -> list[Target]:
    levels = [level(name) for name in ABIS[abi]]
    if not choices.gpu:
        return [_cpu(abi, each) for each in levels]
    return [_gpu(abi, levels[-1].arch, computes_f16(choices.f16))]


def _cpu(abi: str, row: Level) -> Target:
    shared = _shared(abi, row.arch, "-".join([abi, *(f for f in row.features if f != "neon")]))
    return replace(
        shared,
        device="cpu",
        kernels="cpu",
        page_form="key-columns-byte-quads",
        cpu=row.cpu,
        features=row.features,
        vector_bits=row.vector_bits,
        tile_columns=_COLUMNS,
        signed_codes=True,
        f16=True,
    )


def _gpu(abi: str, arch: str, f16: bool) -> Target:
    shared = _shared(abi, arch, abi)
    return replace(
        shared,
        device="webgpu",
        kernels="gpu",
        generator="webgpu",
        limits=LIMITS,
        f16=f16,
        packed_dot=True,
    )


def _shared(abi: str, arch: str, variant: str) -> Target:
    return Target(
        name="android",
        device="",
        arch=arch,
        triple=f"{arch}-linux-android",
        variant=variant,
        library=f"model.{variant}.so",
        link=partial(link_model, arch=arch, needed=_SYSTEM, options=_PAGES),
        opened_by="put it into an app: mlcc package --android",
        run_missing="runs in an Android app; see docs/devices.md",
    )
