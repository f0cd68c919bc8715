"""Links objects of a desktop's or a server's CPU: the one that compiles, or another of Linux."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mlcc.util.machine import machine
from mlcc_targets.apple import link_dylib
from mlcc_targets.elf import archive_model, link_model
from mlcc_targets.target import Link, TargetError


def link_for(arch: str) -> Link:
    """What links for `arch`: as this system does where it is this machine's, else as Linux does."""
    if arch != machine() or sys.platform.startswith("linux"):
        return partial(link_model, arch=arch)
    return partial(link_dylib, arch=arch) if sys.platform == "darwin" else _untried


def archive_for(arch: str) -> Link | None:
    """What makes static libraries for `arch`; None = there is no executor to link them with."""
    linux = arch != machine() or sys.platform.startswith("linux")
    return partial(archive_model, arch=arch) if linux else None


def _untried(objects: Sequence[Path], library: Path) -> None:
    raise TargetError(f"linking {library.name} is not built yet on {sys.platform}; use Linux")
