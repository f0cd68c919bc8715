"""A library that is built of sources, once: beside it stands of which, or why it could not be.

The standard library only, and no compiler: `build.py` and runtime/native know theirs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path


class BuildError(Exception):
    """A library cannot be built here; the message says why and what to install."""


def hash_of(sources: Iterable[Path]) -> str:
    """Of names and contents, in this order."""
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def stamp(library: Path) -> Path:
    """Where the hash of a library's sources is."""
    return library.with_name("sources.sha256")


def absent(library: Path) -> Path:
    """Where it is said why there is none: one line, written where a build could not be done."""
    return library.with_name("absent.txt")


def is_current(library: Path, wanted: str) -> bool:
    """Whether the library stands and was built from sources of this hash."""
    return library.exists() and stamp(library).exists() and stamp(library).read_text() == wanted


def build_or_explain(library: Path, wanted: str, build: Callable[[Path], object]) -> str:
    """Build in place unless that was done. Returns "", or why it failed, which it also notes."""
    if is_current(library, wanted):
        return ""
    library.parent.mkdir(exist_ok=True)
    try:
        build(library)
    except BuildError as error:
        library.unlink(missing_ok=True)  # an old one would be of other sources
        absent(library).write_text(f"{error}\n", encoding="utf-8")
        return str(error)
    absent(library).unlink(missing_ok=True)
    stamp(library).unlink(missing_ok=True)  # a copy of a tree may share the file: never in place
    stamp(library).write_text(wanted)
    return ""
