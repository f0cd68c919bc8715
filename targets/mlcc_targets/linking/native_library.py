"""Libraries for CPUs of desktops and servers: how each system's are named, generated and linked."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import partial

from mlcc.util.machine import machine
from mlcc_targets.apple import MACOS, link_dylib
from mlcc_targets.linking.elf import archive_model, link_model
from mlcc_targets.linking.pe import TARGETS as WINDOWS
from mlcc_targets.linking.pe import link_dll
from mlcc_targets.target import Link, TargetError


@dataclass(frozen=True)
class System:
    """How libraries for a system and an architecture are made."""

    name: str
    suffix: str
    triple: str
    """LLVM's."""
    link: Link
    archive: Link | None = None
    """Makes static libraries; None = no executor can link them."""


SYSTEMS = ("linux", "windows", "macos")


def this_system() -> str:
    """This machine's. Raises TargetError for one that has no libraries."""
    found = {"Linux": "linux", "Windows": "windows", "Darwin": "macos"}.get(platform.system())
    if found is None:
        raise TargetError(f"no libraries for {platform.system()}; use --os {','.join(SYSTEMS)}")
    return found


def system_for(name: str, arch: str) -> System:
    """A system's row. Raises TargetError for one that has no such machines."""
    if name == "linux":
        link, archive = partial(link_model, arch=arch), partial(archive_model, arch=arch)
        return System("Linux", ".so", f"{arch}-linux-gnu", link, archive)
    if name == "windows" and arch in WINDOWS:
        return System("Windows", ".dll", f"{arch}-pc-windows-gnu", partial(link_dll, arch=arch))
    if name == "macos":
        triple = f"{ {'aarch64': 'arm64'}.get(arch, arch) }-apple-macos{MACOS}"
        return System("macOS", ".dylib", triple, partial(link_dylib, arch=arch))
    if name == "windows":
        raise TargetError(f"no Windows libraries for {arch} yet; use --cpu any-x86-64")
    raise TargetError(f"unknown system '{name}'; use --os with some of: {', '.join(SYSTEMS)}")


def link_for(arch: str) -> Link:
    """The link function of this system for `arch`, or Linux' for another machine's."""
    return system_for(this_system() if arch == machine() else "linux", arch).link
