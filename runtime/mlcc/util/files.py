"""Safe reading of untrusted files: only regular files, only inside a folder, only up to a size.

Checkpoints and compiled models may come from anywhere. A symlink that leaves the folder could
leak a private file into an artifact; a device or a pipe may never end.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


class FileError(ValueError):
    """A file that is refused; the message says why, without the file name."""


def real(path: Path) -> Path:
    """`path` with links resolved; a loop of links is its own target (`Path.resolve` raises)."""
    return Path(os.path.realpath(path))


def is_within(path: Path, folder: Path) -> bool:
    """Whether `path`, its links followed, lies in `folder`."""
    return real(path).is_relative_to(real(folder))


def read_regular(path: Path, limit: int) -> bytes:
    """All of a regular file of at most `limit` bytes. Raises FileError, OSError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileError("it is no regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileError(f"it is larger than {limit >> 20} MiB")
    return data


def begins_with(path: Path, magic: bytes) -> bool:
    """Whether a file begins with these bytes; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
"""First bytes of the text that Git leaves in place of a large file until it is fetched."""
FETCH_LFS = "is a Git LFS pointer, not the file itself; type `git lfs pull` in its folder"


def is_lfs_pointer(path: Path) -> bool:
    """Whether a large file was not fetched by Git LFS."""
    return begins_with(path, LFS_POINTER)


_BINARY = getattr(os, "O_BINARY", 0)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step: readers see the old content or the new. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
