"""Builds a library once per state of its sources, and records their hash or the error beside it.

Libraries are also kept in the user's cache by that hash, so that a second clone builds nothing. The
standard library only. Compilers are called by `build.py` and runtime/native.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
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


_MOST_KEPT = 4
"""Builds of one library in the cache; the oldest are deleted."""


def cache_folder() -> Path:
    """The folder of the cache. Raises RuntimeError if the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mlcc" / "native"


def cached(library: Path, wanted: str, arch: str = "") -> Path:
    """Where the cache has a library of sources with this hash, for an instruction set and these
    versions of the packages that it is made of."""
    parts = [wanted, arch or platform.machine(), platform.libc_ver()[1], os.environ.get("CXX", "")]
    for package in ("apache-tvm", "apache-tvm-ffi", "wgpu", "ziglang"):
        with suppress(PackageNotFoundError):
            parts.append(version(package))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return cache_folder() / f"{library.stem}-{key}{library.suffix}"


def build_or_explain(
    library: Path, wanted: str, build: Callable[[Path], object], arch: str = ""
) -> str:
    """Build in place unless it is current, or copy it from the cache. arch: an instruction set, if
    not this machine's. Returns "", or the error, which it also records."""
    if is_current(library, wanted):
        return ""
    library.parent.mkdir(parents=True, exist_ok=True)
    try:
        kept = cached(library, wanted, arch)
        if not _copy(kept, library):
            build(library)
            _copy(library, kept)
            _trim(library)
    except BuildError as error:
        library.unlink(missing_ok=True)  # an old one has other sources
        absent(library).write_text(f"{error}\n", encoding="utf-8")
        return str(error)
    absent(library).unlink(missing_ok=True)
    stamp(library).unlink(missing_ok=True)  # a copied tree may share the file: never write in place
    stamp(library).write_text(wanted)
    return ""


def _trim(library: Path) -> None:
    with suppress(OSError):
        builds = cache_folder().glob(f"{library.stem}-*")
        for old in sorted(builds, key=lambda path: -path.stat().st_mtime)[_MOST_KEPT:]:
            old.unlink()


def _copy(source: Path, target: Path) -> bool:
    """Copy a file in one step; False if that cannot be done."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, partial)
        partial.replace(target)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        return False
    return True
