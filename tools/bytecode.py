"""Bytecode of installed packages, which the checkouts of a user share.

Where none may lie beside sources (PYTHONDONTWRITEBYTECODE), `dev.py` keeps bytecode in a folder of
the checkout (PYTHONPYCACHEPREFIX). Below it the place of site-packages is a link into the user's
cache, so a second checkout with the same packages compiles none of them. Python itself compares the
time and size of each source with those in its bytecode. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from mlcc.util import user_folders

KEPT = 3
"""Sets of packages whose bytecode stays in the cache, the last used; each takes 150 MB."""


def share(prefix: Path, site: Path) -> None:
    """Link the bytecode of `site`, a site-packages, below `prefix` (PYTHONPYCACHEPREFIX) to the
    cache. The checkout keeps its own without uv, a home or the right to link."""
    place = prefix.joinpath(*site.parts[1:])
    if place.is_symlink() or place.exists():
        return
    with suppress(OSError, RuntimeError):
        cache = user_folders.cache() / "bytecode"
        if not (name := _packages(site)):
            return
        folder = cache / name
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(folder)
        _trim(cache)


def _packages(site: Path) -> str:
    """A name for this Python and the packages of `site`, with the times of their files: those of
    other times would replace each other's bytecode. Of uv's packages, which are links to one set
    of files; pip writes new ones, with times of their own. "" if there are none."""
    found = [path.parent for path in sorted(site.glob("*.dist-info/INSTALLER"))
             if path.read_text() == "uv"]  # fmt: skip
    times = [f"{info.name} {(info / 'METADATA').stat().st_mtime_ns}" for info in found]
    text = "\0".join([str(sys.implementation.cache_tag), *times])
    return hashlib.sha256(text.encode()).hexdigest()[:24] if times else ""


def _trim(cache: Path) -> None:
    folders = sorted(cache.iterdir(), key=lambda folder: -folder.stat().st_mtime)
    for folder in folders[KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)
