"""The output folder of a compile: locked, written as a temporary sibling, renamed at the end.

Knows nothing of the contents. Hidden names in the parent folder, all gone at the
end: .NAME.mlcc-lock, .NAME.mlcc-tmp-PID (being written), .NAME.mlcc-old (being replaced).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.errors import MlccError


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Lock `out` for this process. Raises MlccError if another process holds the lock."""
    path = out.parent / f".{out.name}.mlcc-lock"
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise MlccError(
            f"{out}: another `mlcc compile`{_holder(out)} is writing it; "
            "wait for it or choose another --output"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # before the release, so that no other process locks this file
            path.unlink()  # fails on Windows, where the file is open
        lock.release()
        if os.name == "nt":
            with suppress(OSError):
                path.unlink()


def check_replaceable(out: Path) -> None:
    """Raises MlccError unless `out` is absent, empty, or contains a compiled model and nothing
    else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    other = "choose another --output or remove it"
    if not (out / MANIFEST_NAME).is_file():
        raise MlccError(f"{out}: exists and is not a compiled model; {other}")
    foreign = sorted(_files(out) - _own_files(out))
    if foreign:
        raise MlccError(f"{out}: holds files that mlcc did not write ({foreign[0]}); {other}")


def temporary(out: Path) -> Path:
    """A fresh sibling folder of `out`; leftovers of killed compiles are removed. Needs the lock."""
    old = _old(out)
    if old.exists() and not out.exists():
        old.rename(out)  # killed between the two renames of `replace`
    for leftover in (old, *out.parent.glob(f".{_escaped(out)}.mlcc-tmp-*")):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = out.parent / f".{out.name}.mlcc-tmp-{os.getpid()}"
    folder.mkdir()
    return folder


def replace(folder: Path, out: Path) -> None:
    """Rename `folder` to `out`; the old content of `out` is deleted once the new one is in
    place."""
    old = _old(out)
    if out.exists():
        out.rename(old)
    try:
        folder.rename(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise
    sync_folder(out.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make renames and new files in a folder durable, where the system supports it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _holder(out: Path) -> str:
    found = [path.name for path in out.parent.glob(f".{_escaped(out)}.mlcc-tmp-*")]
    return f" (process {found[0].rpartition('-')[2]})" if found else ""


def _escaped(out: Path) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in out.name)


def _old(out: Path) -> Path:
    return out.parent / f".{out.name}.mlcc-old"


def _files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def _own_files(folder: Path) -> set[str]:
    # Leniently: a damaged artifact may be replaced by compiling again.
    try:
        rows = json.loads((folder / MANIFEST_NAME).read_bytes())["files"]
        return {MANIFEST_NAME, *(str(row["path"]) for row in rows)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {MANIFEST_NAME}
