"""Files that all processes of a run of tests share: made by the one that needs them first."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


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
