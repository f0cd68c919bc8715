"""Target `vulkan`: WGSL kernels for GPUs, run through wgpu-native: by Vulkan on Linux and Windows,
by Direct3D 12 where Windows has no Vulkan, by Metal on macOS.

The kernels are the same text everywhere; libraries for several systems differ in their host code.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc.util.machine import machine
from mlcc_targets.linking.native_library import link_for, system_for, this_system
from mlcc_targets.target import Choices, Target, TargetError
from mlcc_targets.wgsl import DESKTOP, LIMITS, computes_f16

_ARCHS = {"macos": ("aarch64", "x86_64")}
"""Architectures of a system, if not this machine's."""


def target(choices: Choices) -> Target:
    """The row of this system, or of those that were chosen: the first with the others as
    alternatives. The host code runs on any CPU of its architecture. Raises TargetError."""
    systems = tuple(dict.fromkeys(choices.systems))
    if not systems:
        return _row(choices)
    found = [(name, arch) for name in systems for arch in _ARCHS.get(name, (machine(),))]
    first, *others = (_for_system(choices, *each, len(systems) > 1) for each in found)
    return replace(first, alternatives=tuple(others))


def _row(choices: Choices) -> Target:
    return Target(
        name="vulkan",
        device="webgpu",
        kernels="gpu",
        generator="webgpu",
        arch=machine(),
        systems=(this_system(),),
        limits=LIMITS if choices.webgpu_limits else DESKTOP,
        webgpu_limits=choices.webgpu_limits,
        f16=computes_f16(choices.f16),
        packed_dot=True,
        link=link_for(machine()),
    )


def _for_system(choices: Choices, name: str, arch: str, several: bool) -> Target:
    """The row of a system and an architecture. several: whether there are other systems."""
    how = system_for(name, arch)
    if how.static:
        raise TargetError(f"target 'vulkan' makes no libraries for {how.name}; use --target ios")
    foreign = name != this_system() or arch != machine()
    intel = name in _ARCHS and arch == "x86_64"
    variant = "-".join([name] * several + ["intel"] * intel)
    return replace(
        _row(choices),
        arch=arch,
        triple=how.triple if foreign else "",
        systems=(name,),
        library=".".join(filter(None, ("model", variant))) + how.suffix,
        variant=variant,
        link=how.link,
        run_missing=f"runs on a {how.name} machine with {arch}" if foreign else "",
    )
