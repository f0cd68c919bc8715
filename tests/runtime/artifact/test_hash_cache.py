"""A hashed artifact is not hashed again until its files have changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mlcc.artifact.folder
from mlcc.artifact.checks import hash_cache
from mlcc.artifact.checks.integrity import check_hashes
from mlcc.artifact.folder import Artifact
from mlcc.errors import ArtifactError
from tests.runtime.artifact.small_artifact import make

WEIGHTS = "weights-00001-of-00001.safetensors"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An artifact whose files changed long enough ago, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hash_cache, "SETTLED_NS", -(1 << 62))
    return make(tmp_path / "tiny")


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Grows by each folder whose files are hashed."""
    seen: list[Path] = []

    def counted(where: Path, *arguments: object, **options: object) -> None:
        seen.append(where)
        check_hashes(where, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(mlcc.artifact.folder, "check_hashes", counted)
    return seen


def flip(path: Path) -> None:
    """Flip one bit of the file's last byte, in place."""
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(len(data) - 1)
        file.write(bytes([data[-1] ^ 1]))


def test_hashed_once(folder: Path, hashed: list[Path]) -> None:
    for _ in range(3):
        Artifact.open(folder)
    assert hashed == [folder]


def test_files_that_just_changed_are_hashed_each_time(
    folder: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_cache, "SETTLED_NS", 1 << 62)
    for _ in range(2):
        Artifact.open(folder)
    assert hashed == [folder] * 2


def same_times(path: Path) -> None:
    """Other bytes, but size and time of writing as before, as some tools restore them."""
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path) -> None:
    """Replace a file by another one of equal size and modification time."""
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    flip(copy)
    shutil.copystat(path, copy)
    copy.rename(path)


@pytest.mark.parametrize("damage", [flip, same_times, replaced])
@pytest.mark.parametrize("name", [WEIGHTS, "model.so", "tokenizer.json"])
def test_damage_after_it_was_found_sound(
    folder: Path, damage: Callable[[Path], None], name: str
) -> None:
    Artifact.open(folder)
    damage(folder / name)
    for _ in range(2):
        with pytest.raises(ArtifactError, match=f"{name} is damaged in bytes"):
            Artifact.open(folder)


def test_a_damaged_one_is_not_remembered(folder: Path) -> None:
    flip(folder / WEIGHTS)
    for _ in range(2):
        with pytest.raises(ArtifactError, match="is damaged in bytes"):
            Artifact.open(folder)
    assert not hash_cache.records_folder().exists()


def test_a_change_while_it_is_hashed_is_not_remembered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_behind(where: Path, *arguments: object, **options: object) -> None:
        check_hashes(where, *arguments, **options)  # type: ignore[arg-type]
        flip(where / WEIGHTS)

    with monkeypatch.context() as during:
        during.setattr(mlcc.artifact.folder, "check_hashes", changed_behind)
        Artifact.open(folder)
    with pytest.raises(ArtifactError, match="is damaged in bytes"):
        Artifact.open(folder)


def test_a_copy_is_hashed_anew(folder: Path, hashed: list[Path], tmp_path: Path) -> None:
    Artifact.open(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    Artifact.open(copy)
    assert hashed == [folder, copy]


def test_one_that_is_opened_without_hashing_is_not_remembered(
    folder: Path, hashed: list[Path]
) -> None:
    Artifact.open(folder, verify=False)
    Artifact.open(folder)
    assert hashed == [folder]


def test_the_check_that_is_asked_for_reads_every_byte(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that decays changes no time: as if the stamps were equal."""
    artifact = Artifact.open(folder)
    flip(folder / WEIGHTS)
    monkeypatch.setattr(hash_cache, "check_hashes_once", lambda *_: None)
    with pytest.raises(ArtifactError, match="is damaged in bytes"):
        artifact.verify()


def test_a_cache_that_cannot_be_written(folder: Path, hashed: list[Path], tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"a file")
    for _ in range(2):
        Artifact.open(folder)
    assert hashed == [folder] * 2


def test_cleaning_the_cache_forgets(folder: Path, hashed: list[Path]) -> None:
    Artifact.open(folder)
    assert list(hash_cache.records_folder().iterdir())
    for _ in range(2):
        hash_cache.clear()
    Artifact.open(folder)
    assert hashed == [folder] * 2


def test_records_are_named_by_a_whole_digest(folder: Path) -> None:
    """By a part of it, other files could be taken for those that were hashed."""
    Artifact.open(folder)
    (record,) = hash_cache.records_folder().iterdir()
    assert len(bytes.fromhex(record.name)) == 32
