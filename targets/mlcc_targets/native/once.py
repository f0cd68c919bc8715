"""Builds a library once per state of its sources, and records their hash or the error beside it.

Standard library only. Compilers are called by `build.py` and runtime/native.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path


class BuildError(Exception):
    """A library cannot be built on this machine; the message says why and what to install."""


def hash_of(sources: Iterable[Path]) -> str:
    """The hash of names and contents, in this order."""
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def stamp(library: Path) -> Path:
    """The file with the hash of a library's sources."""
    return library.with_name("sources.sha256")


def absent(library: Path) -> Path:
    """The file with the reason of a failed build, in one line."""
    return library.with_name("absent.txt")


def is_current(library: Path, wanted: str) -> bool:
    """Whether the library exists and was built from sources with this hash."""
    return library.exists() and stamp(library).exists() and stamp(library).read_text() == wanted


def build_or_explain(library: Path, wanted: str, build: Callable[[Path], object]) -> str:
    """Build in place unless it is current. Returns "", or the error, which it also records."""
    if is_current(library, wanted):
        return ""
    library.parent.mkdir(exist_ok=True)
    try:
        build(library)
    except BuildError as error:
        library.unlink(missing_ok=True)  # an old one has other sources
        absent(library).write_text(f"{error}\n", encoding="utf-8")
        return str(error)
    absent(library).unlink(missing_ok=True)
    stamp(library).unlink(missing_ok=True)  # a copied tree may share the file: never write in place
    stamp(library).write_text(wanted)
    return ""
