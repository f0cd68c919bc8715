"""Files that all processes of a run of tests share: made by the one that needs them first, or kept
from a former run."""

from __future__ import annotations

import atexit
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from mlcc.util.file_cache import KERNELS, FileCache

_KEPT = FileCache("tests/compiled", 512 << 20)
atexit.register(_KEPT.trim)


def folder(name: str) -> Path:
    """A folder below the run's, which its first process removes (`tests/conftest.py`)."""
    found = Path(os.environ["MLCC_TESTS_SHARED"]) / name
    found.mkdir(parents=True, exist_ok=True)
    return found


def make(path: Path, write: Callable[[Path], object]) -> Path:
    """`path`, by `write` if it is not there; other processes see the whole file or none."""
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            made = Path(temporary) / path.name
            write(made)
            made.replace(path)
    return path


def keep(path: Path, made_of: Iterable[str | bytes], write: Callable[[Path], object]) -> Path:
    """Likewise, and for later runs: in the user's cache, by all that it is made of (texts of
    sources, commands, versions of compilers), of which none is the path of a file or a folder: the
    checkout may lie elsewhere then."""
    made_of = list(made_of)

    def load_or_write(made: Path) -> None:
        if (data := load(path.name, made_of)) is not None:
            made.write_bytes(data)
        else:
            write(made)
            store(path.name, made_of, made.read_bytes())

    return make(path, load_or_write)


def load(name: str, made_of: Iterable[str | bytes]) -> bytes | None:
    """A file of the user's cache, by its name and all that it is made of; None = there is none."""
    return _KEPT.load(_key(name, made_of))


def store(name: str, made_of: Iterable[str | bytes], data: bytes) -> None:
    """Keep a file for `load` of later runs."""
    _KEPT.store(_key(name, made_of), data)


def _key(name: str, made_of: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256(name.encode())
    for part in made_of:
        digest.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return digest.hexdigest()


def own_cache(folder: Path) -> str:
    """The value of XDG_CACHE_HOME for a test that has a cache of its own, in `folder`; of kernels
    it has the user's, as all of a model's take seconds."""
    kept = KERNELS.folder()
    kept.mkdir(parents=True, exist_ok=True)
    (folder / "mlcc").mkdir(parents=True, exist_ok=True)
    (folder / "mlcc" / kept.name).symlink_to(kept)
    return str(folder)


@cache
def version_of(*compiler: str) -> str:
    """The version that a compiler's command prints: a part of all that it makes."""
    command = [*compiler, "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def texts(folder: Path, pattern: str) -> list[bytes]:
    """The files of a folder that match a glob pattern, as parts of what they are compiled into."""
    return [path.read_bytes() for path in sorted(folder.glob(pattern))]
