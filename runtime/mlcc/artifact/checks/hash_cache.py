"""Cache of successful hash checks, so that later starts need not read all files of an artifact.

Each checked artifact is one empty file in the cache folder, keyed by device, inode, size, mtime and
ctime of its files. Writing, replacing or copying a file changes one of these, and the artifact is
hashed again. Disk corruption changes none; `mlcc inspect --verify` detects it, since it does not
use this cache. On Linux and macOS no program can set ctime; on Windows there is only mtime.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mlcc.artifact.schema import FileEntry
from mlcc.util import user_folders

SETTLED_NS = 2_000_000_000
"""Timestamps of file systems are coarse (FAT: two seconds): a file that changed more recently than
this could change again with the same timestamp."""


class _State(NamedTuple):
    """The state of the files at one moment. changed_ns: the latest change."""

    record: Path
    changed_ns: int


def records_folder() -> Path:
    """The folder of the cache. Raises RuntimeError if the user has no home."""
    return user_folders.cache() / "verified"


def check_hashes_once(folder: Path, files: Sequence[FileEntry], check: Callable[[], None]) -> None:
    """Call `check` unless the cache has the files in their present state. Raises what `check`
    raises, and then stores nothing. An unwritable cache folder is ignored."""
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
    """Delete the cache: each artifact is hashed again."""
    with suppress(OSError, RuntimeError):
        shutil.rmtree(records_folder())


def _state(folder: Path, files: Sequence[FileEntry]) -> _State | None:
    """None = a file cannot be read, or there is no cache folder."""
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
