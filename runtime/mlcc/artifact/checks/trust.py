"""Records which compiled models the user trusts: compiled here, or announced on an earlier run.

A compiled model is machine code that runs with the user's rights, so the first run of one that was
compiled elsewhere prints a note. Each trusted model is one empty file, named by the hash of its
manifest, which has the hash of every file: a copy is trusted too, a changed model is not.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from mlcc.artifact.manifest import MAX_MANIFEST_BYTES
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.util import user_folders
from mlcc.util.files import FileError, read_regular


def trust(folder: Path) -> None:
    """Record the model in `folder` as trusted. An unwritable home folder is ignored."""
    with suppress(OSError, FileError, RuntimeError):  # RuntimeError: there is no home
        path = _record(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def is_trusted(folder: Path) -> bool:
    """Whether the model in `folder` was recorded as trusted."""
    with suppress(OSError, FileError, RuntimeError):
        return _record(folder).exists()
    return False


def _record(folder: Path) -> Path:
    manifest = read_regular(folder / MANIFEST_NAME, MAX_MANIFEST_BYTES)
    return user_folders.state() / "known" / hashlib.sha256(manifest).hexdigest()
