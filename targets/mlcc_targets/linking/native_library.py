"""Links objects for CPUs of desktops and servers: this machine's, or another one's on Linux."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mlcc.util.machine import machine
from mlcc_targets.apple import link_dylib
from mlcc_targets.linking.elf import archive_model, link_model
from mlcc_targets.target import Link, TargetError


def link_for(arch: str) -> Link:
    """The link function for `arch`: this system's format for this machine's, else Linux'."""
    if arch != machine() or sys.platform.startswith("linux"):
        return partial(link_model, arch=arch)
    return partial(link_dylib, arch=arch) if sys.platform == "darwin" else _untried


def archive_for(arch: str) -> Link | None:
    """The function that makes static libraries for `arch`; None = no executor can link them."""
    linux = arch != machine() or sys.platform.startswith("linux")
    return partial(archive_model, arch=arch) if linux else None


def _untried(objects: Sequence[Path], library: Path) -> None:
    raise TargetError(f"linking {library.name} is not built yet on {sys.platform}; use Linux")
