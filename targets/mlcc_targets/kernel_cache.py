"""Cache of compiled kernels: object files by the hash of what they were compiled from.

Code generation is most of a compile's time, and models of one family, or recipes of one model, have
most kernels in common. An entry is one file: SHA-256 of the object, then the object. A damaged
entry counts as missing, and a folder that cannot be written is ignored. The least recently used
entries are deleted above MAX_BYTES. The compiler's side is `mlcc_compiler/kernel_objects.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 512 << 20
"""An object has about 50 KB."""
_DIGEST = hashlib.sha256().digest_size


def folder() -> Path:
    """The folder of the cache. Raises RuntimeError if the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mlcc" / "kernels"


def load(key: str) -> bytes | None:
    """The object of a key, or None."""
    try:
        path = folder() / key
        entry = path.read_bytes()
        if hashlib.sha256(entry[_DIGEST:]).digest() != entry[:_DIGEST]:
            path.unlink()
            return None
        os.utime(path)
    except (OSError, RuntimeError):
        return None
    return entry[_DIGEST:]


def store(key: str, code: bytes) -> None:
    """Keep an object. Concurrent writers of one key write the same bytes."""
    with suppress(OSError, RuntimeError):
        folder().mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".", dir=folder())
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            Path(name).replace(folder() / key)
        except OSError:
            Path(name).unlink()


def trim() -> None:
    """Delete the least recently used objects above MAX_BYTES."""
    with suppress(OSError, RuntimeError):
        found = [(path, path.stat()) for path in folder().iterdir()]
        found.sort(key=lambda each: -each[1].st_mtime)
        total = 0
        for path, status in found:
            total += status.st_size
            if total > MAX_BYTES:
                path.unlink(missing_ok=True)


def size() -> int:
    """Bytes of all objects."""
    with suppress(OSError, RuntimeError):
        return sum(path.stat().st_size for path in folder().iterdir())
    return 0


def clear() -> None:
    """Delete all objects."""
    with suppress(OSError, RuntimeError):
        shutil.rmtree(folder())
