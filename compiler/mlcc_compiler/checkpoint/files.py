"""Safe access to the files of an untrusted checkpoint folder: regular files inside it only.

A link may point elsewhere in the folder, or, as in the hub's cache, from `snapshots/COMMIT` into
the `blobs` beside it. Links that leave these are refused by name: `LICENSE -> /etc/passwd` would
otherwise be copied into every artifact. Knows names and sizes, not contents.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mlcc.errors import CheckpointError
from mlcc.util.files import (
    FETCH_LFS,
    FileError,
    is_lfs_pointer,
    is_within,
    read_regular,
    real,
)

MAX_JSON_BYTES = 32 << 20
"""The index of a model of 100,000 tensors takes 9 MB."""


def find(folder: Path, name: str) -> Path | None:
    """A file of the folder by its name; None if absent. Raises CheckpointError."""
    path = folder / name
    try:
        if not os.path.lexists(path) or path.is_dir():
            return None
        regular = path.is_file()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not any(is_within(path, root) for root in _roots(folder)):
        raise CheckpointError(
            f"{path}: is a link that leaves the folder; copy the real file into it"
        )
    if not regular:
        raise CheckpointError(f"{path}: is no regular file; fetch it again")
    return path


def read(folder: Path, name: str, limit: int) -> bytes | None:
    """The contents of a file of at most `limit` bytes; None if absent. Raises CheckpointError."""
    path = find(folder, name)
    try:
        return None if path is None else read_regular(path, limit)
    except (OSError, FileError) as error:
        raise _unreadable(path or folder, error) from error


def read_object(folder: Path, name: str) -> dict[str, Any] | None:
    """The JSON object of a file; None if absent. Raises CheckpointError."""
    data = read(folder, name, MAX_JSON_BYTES)
    if data is None:
        return None
    try:
        value = json.loads(data, parse_constant=str)  # NaN is no JSON elsewhere
    except (ValueError, RecursionError) as error:
        raise _unreadable(folder / name, error) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{folder / name}: must hold a JSON object; fetch it again")
    return value


def _roots(folder: Path) -> list[Path]:
    here = real(folder)
    blobs = [here.parents[1] / "blobs"] if here.parent.name == "snapshots" else []
    return [here, *blobs]


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    if is_lfs_pointer(path):
        return CheckpointError(f"{path}: {FETCH_LFS}")
    reason = getattr(error, "strerror", None) or error
    return CheckpointError(f"{path}: cannot be read ({reason}); fetch it again")
