"""Checks that the files of an artifact match its manifest: paths, sizes and hashes.

hashlib releases the GIL, so chunks of large files are hashed on all cores.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path

from mlcc.artifact.checks.consistency import check_relative
from mlcc.artifact.manifest import MAX_MANIFEST_BYTES, Manifest
from mlcc.artifact.schema import CHUNK_BYTES, MANIFEST_NAME, FileEntry
from mlcc.errors import ArtifactError
from mlcc.util.files import FileError, is_within, read_regular

_AGAIN = "copy the folder again or compile the model again"


def resolve_inside(folder: Path, path: str) -> Path:
    """`folder / path`. Raises ArtifactError if it leaves the folder, also by a symlink."""
    full = folder / check_relative(path)
    if not is_within(full, folder):
        raise ArtifactError(f"{path} is a link that leaves the folder; copy the real file into it")
    return full


def check_files(folder: Path, manifest: Manifest) -> None:
    """Check existence and size of every file. Raises ArtifactError."""
    for entry in manifest.files:
        path = resolve_inside(folder, entry.path)
        if not path.is_file():
            raise ArtifactError(f"{entry.path} is missing; {_AGAIN}")
        size = path.stat().st_size
        if size != entry.bytes:
            word = "truncated" if size < entry.bytes else "too long"
            raise ArtifactError(f"{entry.path} is {word} ({size} of {entry.bytes} bytes); {_AGAIN}")


def read_alternatives(folder: Path, manifest: Manifest) -> Iterator[Manifest]:
    """The alternative manifests: same model, and only files that are listed here too. Read lazily,
    since one takes up to 20 ms.

    Raises ArtifactError.
    """
    return (_read_alternative(folder, manifest, path) for path in manifest.alternatives)


def _read_alternative(folder: Path, manifest: Manifest, path: str) -> Manifest:
    try:
        data = read_regular(resolve_inside(folder, path), MAX_MANIFEST_BYTES)
        other = Manifest.from_bytes(data)
    except FileError as error:
        raise ArtifactError(f"{path} cannot be read: {error}; {_AGAIN}") from error
    except ArtifactError as error:
        raise ArtifactError(error.message.replace(MANIFEST_NAME, path)) from error
    same = (other.model, other.weights) == (manifest.model, manifest.weights)
    if other.alternatives or not same or not set(other.files) <= set(manifest.files):
        raise ArtifactError(f"{path} is no alternative of this model; {_AGAIN}")
    return other


def check_hashes(
    folder: Path,
    files: Sequence[FileEntry],
    *,
    whole: Container[str] = (),
    threads: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Check the hashes of all chunks. Raises ArtifactError naming the damaged bytes. `progress`
    gets the bytes that were read, and all of them.

    For paths in `whole` the hash of the whole file is compared too, if it has several chunks: about
    a second per gigabyte on one core.
    """
    jobs = [(entry, i) for entry in files for i in range(len(entry.chunks))]
    done, total = 0, sum(entry.bytes for entry in files)
    for (entry, chunk), sound in zip(jobs, _hash_all(folder, jobs, threads), strict=True):
        start = chunk * CHUNK_BYTES
        stop = min(start + CHUNK_BYTES, entry.bytes)
        done += stop - start
        progress(done, total)
        if not sound:
            raise ArtifactError(f"{entry.path} is damaged in bytes {start} to {stop}; {_AGAIN}")
    for entry in files:
        if entry.path not in whole or len(entry.chunks) < 2:
            continue
        if _hash(folder / entry.path) != entry.sha256:
            raise ArtifactError(f"{entry.path} is not of the sha256 that is listed; {_AGAIN}")


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest()


def _hash_all(
    folder: Path, jobs: list[tuple[FileEntry, int]], threads: int | None
) -> Iterator[bool]:
    if sum(entry.bytes for entry, chunk in jobs if chunk == 0) < CHUNK_BYTES:
        # Faster than starting threads.
        yield from (_chunk_is_sound(folder, *job) for job in jobs)
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(threads or os.cpu_count() or 1)
    try:
        yield from pool.map(lambda job: _chunk_is_sound(folder, *job), jobs)
    finally:  # after Ctrl-C or a damaged chunk, do not finish the rest
        pool.shutdown(cancel_futures=True)


def _chunk_is_sound(folder: Path, entry: FileEntry, chunk: int) -> bool:
    # Read, not mapped: a file truncated meanwhile must be an error and not a SIGBUS.
    with (folder / entry.path).open("rb") as file:
        file.seek(chunk * CHUNK_BYTES)
        return hashlib.sha256(file.read(CHUNK_BYTES)).hexdigest() == entry.chunks[chunk]
