"""Files that somebody else made: only regular ones, only within a folder, only up to a size.

A checkpoint or a compiled model may come from anywhere. A link that leaves its folder would read
(and copy into an artifact) what its maker never had; a device or a pipe has no end. Loops of links
are no files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class FileError(ValueError):
    """A file that is not read; the message says why and what to do, without its name."""


def real(path: Path) -> Path:
    """Where `path` leads; a loop of links leads to itself (`Path.resolve` raises for one)."""
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


_BINARY = getattr(os, "O_BINARY", 0)
