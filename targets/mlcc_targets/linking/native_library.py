"""Libraries for CPUs: how each system's are named, generated and linked."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mlcc.util.machine import machine
from mlcc_targets.apple import IOS, MACOS, archive_model, link_dylib
from mlcc_targets.linking.elf import archive_model as archive_elf
from mlcc_targets.linking.elf import link_model
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
    """Makes static libraries beside `link`'s; None = no executor can link them."""
    static: bool = False
    """Whether `link` makes static libraries: apps load no others."""
    opened_by: str = ""
    """What to do with a library, if not to run `mlcc chat`."""


SYSTEMS = ("linux", "windows", "macos", "ios", "ios-simulator")


def this_system() -> str:
    """This machine's: one of SYSTEMS, or what Python calls it."""
    name = platform.system().lower()
    return {"darwin": "macos"}.get(name, name)


def system_for(name: str, arch: str) -> System:
    """A system's row. Raises TargetError for one that has no such machines."""
    if name == "linux":
        link, archive = partial(link_model, arch=arch), partial(archive_elf, arch=arch)
        return System("Linux", ".so", f"{arch}-linux-gnu", link, archive)
    if name == "windows":
        if arch not in WINDOWS:
            raise TargetError(f"no Windows libraries for {arch} yet; use --cpu any-x86-64")
        return System("Windows", ".dll", f"{arch}-pc-windows-gnu", partial(link_dll, arch=arch))
    if name == "macos":
        triple = f"{'arm64' if arch == 'aarch64' else arch}-apple-macos{MACOS}"
        return System("macOS", ".dylib", triple, partial(link_dylib, arch=arch))
    if name in ("ios", "ios-simulator"):
        if arch != "aarch64":
            raise TargetError(f"no libraries of {name} for {arch}; use --cpu any-arm")
        suffix, shown = ("", "iOS") if name == "ios" else ("-simulator", "iOS simulator")
        link = partial(archive_model, target=f"{arch}-ios.{IOS}{suffix}")
        triple = f"arm64-apple-ios{IOS}{suffix}"
        return System(shown, ".a", triple, link, static=True, opened_by="link it: docs/phones.md")
    raise TargetError(f"unknown system '{name}'; use --os with some of: {', '.join(SYSTEMS)}")


def link_for(arch: str) -> Link:
    """The link function of this system for `arch`, or Linux' for another machine's. On a system
    without libraries it raises TargetError: other rows than its own can still be listed there."""

    def refuse(objects: Sequence[Path], library: Path) -> None:
        raise TargetError(f"linking {library.name} is not built yet on {this_system()}; use Linux")

    try:
        return system_for(this_system() if arch == machine() else "linux", arch).link
    except TargetError:
        return refuse
