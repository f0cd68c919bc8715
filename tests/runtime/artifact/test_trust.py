"""Compiled models are trusted that were announced, by the hash of the whole manifest."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from mlcc.artifact.checks.trust import is_trusted, trust
from mlcc.artifact.manifest import MAX_MANIFEST_BYTES


def folder_of(path: Path, manifest: bytes) -> Path:
    path.mkdir()
    (path / "mlcc.json").write_bytes(manifest)
    return path


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_model_is_trusted_by_the_hash_of_its_manifest(state: Path, tmp_path: Path) -> None:
    model = folder_of(tmp_path / "model", b"manifest")
    assert not is_trusted(model)
    trust(model)
    trust(model)
    assert is_trusted(model) and is_trusted(Path(shutil.copytree(model, tmp_path / "copy")))
    records = [*(state / "mlcc" / "known").iterdir()]
    assert [record.name for record in records] == [hashlib.sha256(b"manifest").hexdigest()]
    other = folder_of(tmp_path / "other", b"manifesT")
    assert not is_trusted(other)
    trust(other)
    assert is_trusted(other) and is_trusted(model)
    assert not is_trusted(tmp_path / "none")


def test_a_part_of_the_hash_is_not_the_hash(state: Path, tmp_path: Path) -> None:
    model = folder_of(tmp_path / "model", b"manifest")
    digest = hashlib.sha256(b"manifest").hexdigest()
    known = state / "mlcc" / "known"
    known.mkdir(parents=True)
    for name in (digest[:4], digest[:-1], digest[::-1], digest.upper()):
        (known / name).touch()
    assert not is_trusted(model)


def test_the_home_folder_is_used_without_a_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    model = folder_of(tmp_path / "model", b"manifest")
    trust(model)
    assert is_trusted(model)
    assert len([*(tmp_path / "home/.local/state/mlcc/known").iterdir()]) == 1


def test_what_cannot_be_read_or_written_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = folder_of(tmp_path / "model", b"manifest")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/x")
    trust(model)
    assert not is_trusted(model)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    large = folder_of(tmp_path / "large", b" " * (MAX_MANIFEST_BYTES + 1))
    trust(large)
    trust(tmp_path / "none")
    assert not is_trusted(large) and not (tmp_path / "state").exists()
