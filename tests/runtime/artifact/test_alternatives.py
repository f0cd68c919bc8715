"""Alternative manifests: other libraries for the same weights, each complete."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mlcc.artifact.folder import Artifact
from mlcc.artifact.manifest import Manifest
from mlcc.artifact.schema import MANIFEST_NAME, FileEntry, LibraryInfo
from mlcc.errors import ArtifactError
from mlcc_compiler.artifact.package import ArtifactWriter
from tests.runtime.artifact.small_artifact import fill, make, rewrite
from tests.runtime.artifact.test_inspect import shown

OTHER = "mlcc.f32.json"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with ArtifactWriter(tmp_path_factory.mktemp("sound") / "tiny") as writer:
        manifest = fill(writer)
        writer.path("other.so").write_bytes(b"\x7fELF other")
        other = replace(manifest, library=LibraryInfo(path="other.so", kind="so"))
        return writer.finish(manifest, {OTHER: other})


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def read(folder: Path, name: str) -> Manifest:
    return Manifest.from_bytes((folder / name).read_bytes())


def refused(folder: Path, gist: str) -> None:
    """Open all of it without hashing, as `inspect` does."""
    with pytest.raises(ArtifactError, match=gist) as caught:
        Artifact.open(folder, verify=False, host=False)
    assert "\n" not in caught.value.message and caught.value.message.startswith(str(folder))


def test_the_primary_lists_all_and_an_alternative_what_is_its_own(sound: Path) -> None:
    primary, other = read(sound, MANIFEST_NAME), read(sound, OTHER)
    assert primary.alternatives == (OTHER,) and other.alternatives == ()
    paths, others = ({entry.path for entry in m.files} for m in (primary, other))
    assert paths == {p.relative_to(sound).as_posix() for p in sound.rglob("*.*")} - {
        MANIFEST_NAME
    } | {"LICENSE"}
    assert others == paths - {"model.so", OTHER}
    assert other.weights == primary.weights and set(other.files) < set(primary.files)


def test_it_opens_and_so_does_the_alternative_in_the_others_place(copy: Path) -> None:
    assert Artifact.open(copy).library_path.name == "model.so"
    (copy / "model.so").unlink()
    (copy / OTHER).rename(copy / MANIFEST_NAME)
    assert Artifact.open(copy).library_path.name == "other.so"


def test_a_new_compile_may_replace_it(copy: Path) -> None:
    make(copy)
    assert not (copy / OTHER).exists() and Artifact.open(copy).manifest.alternatives == ()


def test_inspect_names_the_alternatives_and_hashes_their_files(copy: Path) -> None:
    assert OTHER in shown(str(copy), "--verify")
    (copy / "other.so").write_bytes(b"\x7fELF OTHER")
    with pytest.raises(ArtifactError, match=r"other\.so is damaged"):
        shown(str(copy), "--verify")


@pytest.mark.parametrize("name", [OTHER, "other.so"])
def test_a_missing_file(copy: Path, name: str) -> None:
    (copy / name).unlink()
    refused(copy, f"{name} is missing")


def test_a_damaged_alternative_is_named(copy: Path) -> None:
    data = bytearray((copy / OTHER).read_bytes())
    data[100] ^= 1
    (copy / OTHER).write_bytes(data)
    refused(copy, f"{OTHER} is damaged or was edited by hand")
    with pytest.raises(ArtifactError, match=f"{OTHER} is damaged in bytes"):
        Artifact.open(copy)  # which reads none but the best that runs here, and hashes all


def test_an_alternative_outside_the_folder(copy: Path) -> None:
    (copy / OTHER).rename(copy.parent / OTHER)
    (copy / OTHER).symlink_to(copy.parent / OTHER)
    refused(copy, f"{OTHER} is a link that leaves the folder")
    entry = read(copy, MANIFEST_NAME).file(OTHER)
    assert entry is not None
    moved = replace(entry, path=f"../{OTHER}")
    rewritten = rewrite(
        copy, lambda m: replace(m, alternatives=(moved.path,), files=(*m.files, moved))
    )
    refused(rewritten, "unsafe path")


def test_an_alternative_that_is_not_listed(copy: Path) -> None:
    with pytest.raises(ArtifactError, match=r"uses 'no\.json' but lists no such file"):
        rewrite(copy, lambda m: replace(m, alternatives=("no.json",)))
        Artifact.open(copy)


@pytest.mark.parametrize("what", ["model", "files", "alternatives"])
def test_a_manifest_that_is_no_alternative(copy: Path, what: str) -> None:
    other = read(copy, OTHER)
    library = other.file("other.so")
    assert library is not None
    elsewhere = replace(library, path="model.so")
    wrong = {
        "model": replace(other, model=replace(other.model, name="org/other")),
        "files": replace(other, files=(*other.files, elsewhere)),
        "alternatives": replace(other, alternatives=("tokenizer.json",)),
    }[what]
    data = wrong.to_bytes()
    (copy / OTHER).write_bytes(data)
    rewrite(copy, lambda m: replace(m, files=tuple(_resized(e, len(data)) for e in m.files)))
    refused(copy, f"{OTHER} is no alternative of this model")


def _resized(entry: FileEntry, size: int) -> FileEntry:
    return replace(entry, bytes=size) if entry.path == OTHER else entry
