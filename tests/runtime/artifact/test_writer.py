"""Writing an artifact: complete or not at all, equal bytes each time, a clear error on failure."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

import mlcc_compiler.artifact.output
import mlcc_compiler.weights.shards as shards
from mlcc.artifact.folder import Artifact
from mlcc.artifact.schema import CHUNK_BYTES, TensorSpec
from mlcc.errors import CapacityError, CheckpointError, MlccError
from mlcc_compiler.artifact.package import ArtifactWriter
from mlcc_compiler.checkpoint.folder import Checkpoint
from tests.runtime.artifact.small_artifact import WEIGHTS, fill, make, specs


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(out: Path, message: str, kind: type[MlccError] = MlccError, size: int = 0) -> None:
    with pytest.raises(kind, match=message) as caught, ArtifactWriter(out, size):
        raise AssertionError("entered")
    assert "\n" not in caught.value.message and caught.value.message.startswith(str(out))


def test_nothing_but_the_artifact_is_left(tmp_path: Path) -> None:
    assert make(tmp_path / "new" / "tiny") == tmp_path / "new" / "tiny"
    assert left(tmp_path / "new") == ["tiny"]
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "new" / "tiny").stat().st_mode & 0o777 == 0o777 & ~umask


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = make(tmp_path / "first"), make(tmp_path / "second")
    files = [path for path in first.rglob("*") if path.is_file()]
    assert len(files) == 8
    for path in files:
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()


def test_an_artifact_is_replaced(tmp_path: Path) -> None:
    make(tmp_path / "tiny", {"w": np.zeros(3, np.float32)})
    make(tmp_path / "tiny")
    assert list(Artifact.open(tmp_path / "tiny").weights()) == list(WEIGHTS)
    assert left(tmp_path) == ["tiny"]


def test_a_damaged_artifact_is_replaced(tmp_path: Path) -> None:
    folder = make(tmp_path / "tiny")
    path = folder / "mlcc.json"
    path.write_bytes(path.read_bytes().replace(b"llama", b"lhama"))
    (folder / "tokenizer.json").unlink()
    Artifact.open(make(folder))


def test_an_empty_folder_is_filled_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make(tmp_path / "link")
    Artifact.open(tmp_path / "real")
    assert (tmp_path / "link").is_symlink()


def test_other_folders_and_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary").write_text("dear")
    refused(tmp_path / "mine", "is not a compiled model; choose another --output")
    refused(tmp_path / "mine" / "diary", "is not a compiled model")
    folder = make(tmp_path / "tiny")
    (folder / "notes.md").write_text("mine")
    refused(folder, r"holds files that mlcc did not write \(notes\.md\)")
    (folder / "notes.md").unlink()
    (folder / "mlcc.json").write_text("{")
    refused(folder, "files that mlcc did not write")


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_artifact_and_nothing_else(tmp_path: Path, kind: Any) -> None:
    folder = make(tmp_path / "tiny")
    before = (folder / "mlcc.json").read_bytes()
    with pytest.raises(kind), ArtifactWriter(folder) as writer:
        fill(writer)
        raise kind
    assert left(tmp_path) == ["tiny"] and (folder / "mlcc.json").read_bytes() == before


def test_leaving_without_finishing_leaves_nothing(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "tiny") as writer:
        fill(writer)
    assert left(tmp_path) == []


def test_what_a_killed_compile_left_is_cleared(tmp_path: Path) -> None:
    for name in (".tiny.mlcc-tmp-123", ".tiny.mlcc-old", ".other.mlcc-tmp-1"):
        (tmp_path / name).mkdir()
    make(tmp_path / "tiny")
    assert left(tmp_path) == [".other.mlcc-tmp-1", "tiny"]


def test_killed_between_the_two_renames(tmp_path: Path) -> None:
    make(tmp_path / "tiny").rename(tmp_path / ".tiny.mlcc-old")
    with ArtifactWriter(tmp_path / "tiny"):
        pass
    Artifact.open(tmp_path / "tiny")
    assert left(tmp_path) == ["tiny"]


def test_a_failed_rename_restores_the_old_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "tiny")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if ".mlcc-tmp-" in self.name:
            raise OSError(errno.EBUSY, "Device or resource busy")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(MlccError, match=r"cannot be written \(Device or resource busy"):
        make(folder)
    assert left(tmp_path) == ["tiny"] and Artifact.open(folder)


def test_two_compiles_of_the_same_output(tmp_path: Path) -> None:
    program = (
        "import sys; from mlcc_compiler.artifact.package import ArtifactWriter\n"
        f"with ArtifactWriter({str(tmp_path / 'tiny')!r}): print('in', flush=True); input()"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as other:
        assert other.stdout and other.stdout.readline() == "in\n"
        refused(tmp_path / "tiny", rf"another `mlcc compile` \(process {other.pid}\) is writing it")
        make(tmp_path / "another")
        other.communicate("\n")
    assert other.returncode == 0 and left(tmp_path) == ["another"]
    make(tmp_path / "tiny")


def test_missing_disk_space_is_reported_first(tmp_path: Path) -> None:
    message = r"needs 1000000\.00 GB and the disk has .* free; free some space"
    refused(tmp_path / "tiny", message, CapacityError, 10**15)
    assert left(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up(tmp_path: Path, number: int) -> None:
    with (
        pytest.raises(CapacityError, match=r"tiny: the disk is full; free some space"),
        ArtifactWriter(tmp_path / "tiny") as writer,
    ):
        writer.path("model.so").write_bytes(b"x")
        raise OSError(number, os.strerror(number))
    assert left(tmp_path) == []


def test_an_output_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path, *args: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(mlcc_compiler.artifact.output.Path, "mkdir", denied)
    refused(tmp_path / "tiny", r"cannot be written \(Permission denied\); choose another --output")
    assert left(tmp_path) == []


def test_a_source_that_cannot_be_read_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with (
        pytest.raises(MlccError, match=r"^/none/weights: No such file or directory; check"),
        ArtifactWriter(tmp_path / "tiny"),
    ):
        Path("/none/weights").read_bytes()


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "tiny", "cannot be written")


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    refused(tmp_path / ("x" * 300), "cannot be written .File name too long")


def test_arrays_that_do_not_fit_their_plan(tmp_path: Path) -> None:
    plan = specs(WEIGHTS)
    for arrays in (
        [WEIGHTS["b"], WEIGHTS["a"]],
        [WEIGHTS["a"].astype(np.float16), WEIGHTS["b"]],
        [WEIGHTS["a"], WEIGHTS["b"], WEIGHTS["b"]],
        [WEIGHTS["a"]],
    ):
        with (
            pytest.raises(ValueError, match=r"planned as|more arrays|fewer arrays"),
            ArtifactWriter(tmp_path / "tiny") as writer,
        ):
            writer.add_weights(plan, arrays)
    with pytest.raises(ValueError, match="same name"):
        shards.plan_shards([*plan, *plan])
    assert left(tmp_path) == []


def test_progress_counts_bytes(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with ArtifactWriter(tmp_path / "tiny") as writer:
        writer.add_weights(specs(WEIGHTS), WEIGHTS.values(), lambda *step: seen.append(step))
    assert seen == [(24, 29), (29, 29)]


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 60))
def test_shards_are_filled_in_order_and_bounded(sizes: list[int], limit: int) -> None:
    plan = shards.plan_shards(
        [TensorSpec(name=str(i), dtype="int8", shape=(n,)) for i, n in enumerate(sizes)], limit
    )
    assert [spec.nbytes for spec in plan] == sizes
    names = [spec.shard for spec in plan]
    assert names == sorted(names)
    for name in set(names):
        own = [spec.nbytes for spec in plan if spec.shard == name]
        assert len(own) == 1 or sum(own) <= limit
        assert name.endswith(f"-of-{len(set(names)):05}.safetensors")


def test_several_shards_read_back_with_the_formats_own_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {f"w{i}": np.full((3, i), i, np.int32) for i in range(5)}
    monkeypatch.setattr(shards, "SHARD_BYTES", 40)
    plan = shards.plan_shards(specs(weights), 40)
    entries = shards.write_shards(tmp_path, plan, weights.values())
    assert len(entries) == 3
    found: dict[str, Any] = {}
    for entry in entries:
        assert entry == shards.hash_file(tmp_path / entry.path, entry.path)
        found |= load_file(tmp_path / entry.path)
    for name, array in weights.items():
        assert np.array_equal(found[name], array)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 5])
def test_hashes_while_writing_equal_hashes_after(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    with shards.HashedFile(tmp_path / "x", "x") as file:
        file.write(data[:100])
        file.write(data[100:])
    assert file.entry() == shards.hash_file(tmp_path / "x", "x")
    assert file.entry().bytes == size


def test_a_checkpoints_files_are_carried_over(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    templates = [{"name": "default", "template": "é"}, {"name": "rag", "template": "r"}]
    texts = {
        "config.json": {},
        "tokenizer.json": {"model": {}},
        "tokenizer_config.json": {"chat_template": templates},
        "generation_config.json": {"top_p": 0.5, "eos_token_id": 1},
        "LICENSE.txt": "free",
    }
    for name, value in texts.items():
        (source / name).write_text(json.dumps(value))
    with ArtifactWriter(tmp_path / "tiny") as writer:
        assert writer.add_checkpoint(Checkpoint.open(source)) == "LICENSE.txt"
        model_files = {p.name: p.read_text(encoding="utf-8") for p in writer.folder.rglob("*.*")}
    assert model_files["chat_template.jinja"] == "é" and model_files["rag.jinja"] == "r"
    assert json.loads(model_files["generation_config.json"])["top_p"] == 0.5


def test_a_template_name_that_is_no_file_name(tmp_path: Path) -> None:
    templates = [{"name": "../x", "template": "t"}]
    for name, value in {
        "config.json": {},
        "tokenizer.json": {"model": {}},
        "tokenizer_config.json": {"chat_template": templates},
    }.items():
        (tmp_path / name).write_text(json.dumps(value))
    with (
        pytest.raises(CheckpointError, match=r"chat template name '\.\./x' is no file name"),
        ArtifactWriter(tmp_path / "tiny") as writer,
    ):
        writer.add_checkpoint(Checkpoint.open(tmp_path))
