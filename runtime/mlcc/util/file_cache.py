"""Caches of derived data in the user's cache folder: one file an entry, named by its key.

An entry is the SHA-256 of its data, then the data: a damaged entry counts as missing. A folder that
cannot be written is ignored. The least recently used entries are deleted above a size.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlcc.util import user_folders

_DIGEST = hashlib.sha256().digest_size


@dataclass
class FileCache:
    """A cache in the folder `name` of mlcc's caches."""

    name: str
    max_bytes: int
    _trimmed: bool = False
    """Whether this process has trimmed it."""
    _stored: int = 0
    """Bytes that this process has stored since."""

    def folder(self) -> Path:
        """The folder of the cache. Raises RuntimeError if the user has no home."""
        return user_folders.cache() / self.name

    def load(self, key: str) -> bytes | None:
        """The data of a key, or None."""
        try:
            path = self.folder() / key
            entry = path.read_bytes()
            if hashlib.sha256(memoryview(entry)[_DIGEST:]).digest() != entry[:_DIGEST]:
                path.unlink()
                return None
            os.utime(path)
        except (OSError, RuntimeError):
            return None
        return entry[_DIGEST:]

    def store(self, key: str, data: bytes) -> None:
        """Keep data. Concurrent writers of one key write the same bytes."""
        with suppress(OSError, RuntimeError):
            self.folder().mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".", dir=self.folder())
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(data).digest())
                    file.write(data)
                Path(name).replace(self.folder() / key)
                self._stored += len(data)
            except OSError:
                Path(name).unlink()

    def trim(self) -> None:
        """Delete the least recently used entries above `max_bytes`. To look at thousands of files
        takes long, so a process does that once, and then only after a sixteenth of `max_bytes`."""
        if self._trimmed and self._stored < self.max_bytes // 16:
            return
        self._trimmed, self._stored = True, 0
        with suppress(OSError, RuntimeError):
            with os.scandir(self.folder()) as entries:
                found = [(entry.path, entry.stat()) for entry in entries]
            found.sort(key=lambda each: -each[1].st_mtime)
            total = 0
            for path, status in found:
                total += status.st_size
                if total > self.max_bytes:
                    Path(path).unlink(missing_ok=True)

    def size(self) -> int:
        """Bytes of all entries."""
        with suppress(OSError, RuntimeError):
            return sum(path.stat().st_size for path in self.folder().iterdir())
        return 0

    def clear(self) -> None:
        """Delete all entries."""
        with suppress(OSError, RuntimeError):
            shutil.rmtree(self.folder())


KERNELS = FileCache("kernels", 512 << 20)
"""Machine code: object files of CPU kernels, of about 50 KB, of which models of one family, or
recipes of one model, have most in common; all else of a library (`mlcc_compiler/object_files.py`),
about 1 MB for a GPU; and CUDA's kernels of a library (`mlcc_compiler/cuda/code.py`)."""
TOKENIZERS = FileCache("tokenizers", 256 << 20)
"""Indexes of large vocabularies (`model/tokenizer/index.py`): 12 MB for 262,144 tokens."""
