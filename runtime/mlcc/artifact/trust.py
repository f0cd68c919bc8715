"""Which compiled models this user compiled here, or was told of before: one empty file for each.

A compiled model is machine code that runs with the user's rights, and one that came from elsewhere
looks like one's own; so its first run says so. Models are known by the hash of their manifest,
which holds the hash of every file: a copy is known too, a changed one is not.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from mlcc.artifact.manifest import MAX_MANIFEST_BYTES
from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.util.files import FileError, read_regular


def trust(folder: Path) -> None:
    """From now on the model in `folder` is known. A home that cannot be written keeps nothing."""
    with suppress(OSError, FileError, RuntimeError):  # RuntimeError: there is no home
        path = _record(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def is_trusted(folder: Path) -> bool:
    """Whether it was remembered."""
    with suppress(OSError, FileError, RuntimeError):
        return _record(folder).exists()
    return False


def _record(folder: Path) -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    known = (Path(base) if base else Path.home() / ".local" / "state") / "mlcc" / "known"
    manifest = read_regular(folder / MANIFEST_NAME, MAX_MANIFEST_BYTES)
    return known / hashlib.sha256(manifest).hexdigest()
