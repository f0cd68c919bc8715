"""Hashes of an artifact's files: every chunk, and where it is wanted the whole file, to the last
digit."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from mlcc.artifact.checks.integrity import check_hashes
from mlcc.artifact.schema import CHUNK_BYTES, FileEntry
from mlcc.errors import ArtifactError


def entry_of(folder: Path, name: str, size: int) -> FileEntry:
    data = name.encode() * (size // len(name.encode()))
    (folder / name).write_bytes(data)
    parts = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    chunks = tuple(hashlib.sha256(part).hexdigest() for part in parts)
    digest = hashlib.sha256(data).hexdigest()
    return FileEntry(path=name, bytes=len(data), sha256=digest, chunks=chunks)


def altered(digest: str, at: int) -> str:
    return digest[:at] + ("1" if digest[at] == "0" else "0") + digest[at + 1 :]


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_sound_files_pass_small_and_large(tmp_path: Path, threads: int | None) -> None:
    small, large = entry_of(tmp_path, "s", 100), entry_of(tmp_path, "l", CHUNK_BYTES + 9)
    assert len(large.chunks) == 2
    check_hashes(tmp_path, [small], whole=("s",), threads=threads)
    check_hashes(tmp_path, [small, large], whole=("l", "s"), threads=threads)


def test_progress_counts_every_byte_once_up_to_all(tmp_path: Path) -> None:
    files = [entry_of(tmp_path, "s", 100), entry_of(tmp_path, "l", CHUNK_BYTES + 9)]
    seen: list[tuple[int, int]] = []
    check_hashes(tmp_path, files, progress=lambda done, total: seen.append((done, total)))
    total = CHUNK_BYTES + 109
    assert seen == [(100, total), (100 + CHUNK_BYTES, total), (total, total)]


@pytest.mark.parametrize("at", [0, 3, 4, 8, 31, 32, 63])
def test_every_digit_of_a_hash_is_compared(tmp_path: Path, at: int) -> None:
    small, large = entry_of(tmp_path, "s", 100), entry_of(tmp_path, "l", CHUNK_BYTES + 9)
    wrong = replace(small, chunks=(altered(small.chunks[0], at),))
    with pytest.raises(ArtifactError, match="s is damaged in bytes 0 to 100;"):
        check_hashes(tmp_path, [wrong])
    wrong = replace(large, chunks=(large.chunks[0], altered(large.chunks[1], at)))
    place = f"l is damaged in bytes {CHUNK_BYTES} to {CHUNK_BYTES + 9};"
    with pytest.raises(ArtifactError, match=place):
        check_hashes(tmp_path, [small, wrong])
    wrong = replace(large, sha256=altered(large.sha256, at))
    check_hashes(tmp_path, [wrong, small], whole=("s",))
    with pytest.raises(ArtifactError, match="l is not of the sha256 that is listed"):
        check_hashes(tmp_path, [small, wrong], whole=("l",))
