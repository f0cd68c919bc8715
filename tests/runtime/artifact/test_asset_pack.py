"""`mlcc package --android`: the files for an app's build, and the command's refusals."""

from __future__ import annotations

import hashlib
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.artifact import asset_pack
from mlcc.artifact.asset_pack import PART_CHUNKS, pack_name, parts_of, write_asset_pack
from mlcc.artifact.folder import Artifact
from mlcc.artifact.schema import CHUNK_BYTES, FileEntry
from mlcc.commands.package import package_command
from mlcc.errors import ArtifactError, CapacityError, MlccError, UnsupportedError
from mlcc_compiler.artifact.package import ArtifactWriter
from tests.runtime.artifact.small_artifact import fill


def made(folder: Path, target: str = "android") -> Artifact:
    with ArtifactWriter(folder) as writer:
        manifest = fill(writer)
        writer.finish(replace(manifest, target=replace(manifest.target, name=target)))
    return Artifact.open(folder, host=False)


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_the_command_writes_a_module_with_all_files(tmp_path: Path) -> None:
    artifact, out = made(tmp_path / "model"), tmp_path / "pack"
    done = CliRunner().invoke(package_command, ["--android", str(artifact.folder), str(out)])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in out.iterdir()) == ["build.gradle.kts", "src"]
    (model,) = (out / "src/main/assets/models").iterdir()
    assert f"models/{model.name}" in done.output
    assert f'packName.set("{model.name}")' in (out / "build.gradle.kts").read_text()
    assert files(model) == files(artifact.folder)


def test_a_large_file_is_cut_at_chunks_and_joins_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = made(tmp_path / "model")
    weights = bytes(range(256)) * 5
    (artifact.folder / "weights.bin").write_bytes(weights)
    monkeypatch.setattr(asset_pack, "CHUNK_BYTES", 256)
    monkeypatch.setattr(asset_pack, "PART_CHUNKS", 2)
    chunks = tuple(hashlib.sha256(weights[i : i + 256]).hexdigest() for i in range(0, 1280, 256))
    entry = FileEntry(path="weights.bin", bytes=1280, sha256="", chunks=chunks)
    large = replace(artifact, manifest=replace(artifact.manifest, files=(entry,)))
    found = files(write_asset_pack(large, tmp_path / "pack"))
    parts = [found[f"weights.bin.{number:03d}"] for number in range(3)]
    assert list(map(len, parts)) == [512, 512, 256] and b"".join(parts) == weights


def test_parts_are_no_larger_than_150_mb() -> None:
    assert 140e6 < PART_CHUNKS * CHUNK_BYTES <= 150e6
    whole = FileEntry(path="w", bytes=1, sha256="", chunks=("",) * PART_CHUNKS)
    assert list(parts_of(whole)) == [("w", range(PART_CHUNKS))]


def refused(artifact: Artifact, out: Path, kind: type[MlccError], gist: str) -> None:
    before = files(out) if out.exists() else None
    with pytest.raises(kind, match=gist) as caught:
        write_asset_pack(artifact, out)
    assert type(caught.value) is kind and "\n" not in caught.value.message
    assert (files(out) if out.exists() else None) == before
    assert not list(out.parent.glob(f".{out.name}*"))


def test_one_for_another_target(tmp_path: Path) -> None:
    artifact = made(tmp_path / "model", "cpu")
    refused(artifact, tmp_path / "pack", UnsupportedError, "for target 'cpu'.*--target android")


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "mine").write_text("keep")
    refused(made(tmp_path / "model"), tmp_path / "pack", MlccError, "is there already")


def test_a_damaged_file_and_one_that_is_gone(tmp_path: Path) -> None:
    artifact = made(tmp_path / "model")
    data = bytearray(artifact.library_path.read_bytes())
    data[-1] ^= 1
    artifact.library_path.write_bytes(data)
    refused(artifact, tmp_path / "pack", ArtifactError, f"{artifact.library_path.name} is damaged")
    artifact.library_path.unlink()
    refused(artifact, tmp_path / "pack", MlccError, "No such file")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = made(tmp_path / "model")
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(3))
    refused(artifact, tmp_path / "pack", CapacityError, "the disk has 3 B free")


def test_the_platform_is_required(tmp_path: Path) -> None:
    done = CliRunner().invoke(package_command, [str(tmp_path), str(tmp_path / "pack")])
    assert "--android" in str(done.exception)


@pytest.mark.parametrize(
    ("model", "name"), [("org/Qwen3-0.6B", "qwen3_0_6b"), ("7b", "model_7b"), ("org/日本", "model")]
)
def test_names_that_gradle_takes(model: str, name: str) -> None:
    assert pack_name(model) == name
