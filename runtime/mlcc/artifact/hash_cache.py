"""Which files were hashed here and found sound, so that the next start need not read them all: one
empty file in the cache folder for each artifact.

Files are known again by their places on the disk, sizes and times of change. Whatever writes to a
file, replaces or copies it changes one of these, and the artifact is hashed anew. A disk that
decays changes none: `mlcc inspect --verify` sees that, and never asks here. On Linux and macOS no
program can set a time of change (ctime); on Windows there is only that of writing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mlcc.artifact.schema import FileEntry

SETTLED_NS = 2_000_000_000
"""Clocks of file systems tick: what changed so recently could change again at the same tick. FAT's
have the longest, two seconds."""


class _State(NamedTuple):
    """Of the files at one moment. changed_ns: when the last of them changed."""

    record: Path
    changed_ns: int


def records_folder() -> Path:
    """Where they are kept. Raises RuntimeError if the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mlcc" / "verified"


def check_hashes_once(folder: Path, files: Sequence[FileEntry], check: Callable[[], None]) -> None:
    """`check` them, unless that was done since they last changed. Raises what it raises, and then
    remembers nothing. A cache folder that cannot be written keeps nothing."""
    before, began_ns = _state(folder, files), time.time_ns()
    if before is not None and before.record.exists():
        return
    check()
    settled = before is not None and before.changed_ns + SETTLED_NS < began_ns
    if before is not None and settled and before == _state(folder, files):
        with suppress(OSError):
            before.record.parent.mkdir(parents=True, exist_ok=True)
            before.record.touch()


def clear() -> None:
    """All of it: each artifact is hashed once more."""
    with suppress(OSError, RuntimeError):
        shutil.rmtree(records_folder())


def _state(folder: Path, files: Sequence[FileEntry]) -> _State | None:
    """None: they cannot be looked at, or there is nowhere to keep it."""
    digest, changed_ns = hashlib.sha256(), 0
    try:
        for entry in files:
            s = (folder / entry.path).stat()
            changed_ns = max(changed_ns, s.st_mtime_ns, s.st_ctime_ns)
            line = (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
            digest.update(f"{entry.sha256} {entry.chunks} {line}\n".encode())
        return _State(records_folder() / digest.hexdigest(), changed_ns)
    except (OSError, RuntimeError):
        return None
