"""`mlcc inspect`: its output, and its one-line refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.commands.inspect import inspect_command
from mlcc.errors import ArtifactError
from tests.runtime.artifact.small_artifact import make, rewrite, with_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "tiny")


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(inspect_command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_table(folder: Path) -> None:
    text = shown(str(folder))
    lines = dict(line.split(maxsplit=1) for line in text.splitlines() if line[0] != " ")
    assert lines["model"] == "org/tiny (llama), 16 tokens, ends with 2, 5"
    assert lines["quantization"] == "q4 (bits 4)"
    assert lines["library"] == "model.so: forward, sample"
    assert lines["cache"] == "8 pages of 16 tokens in 1 layer of float16"
    assert lines["memory"] == "33.80 kB = weights 29 B + caches 32.77 kB + workspace 1.00 kB"
    assert lines["weights"] == "2 tensors in 1 shard"
    assert lines["runs"] == "here     yes"
    assert lines["checked"].startswith("sizes only")
    assert "weights-00001-of-00001.safetensors" in text and max(map(len, text.splitlines())) < 120


def test_json_is_the_manifest(folder: Path) -> None:
    text = shown(str(folder), "--json")
    assert text == (folder / "mlcc.json").read_text(encoding="utf-8")
    assert json.loads(text)["model"]["name"] == "org/tiny"


def test_verify(folder: Path) -> None:
    assert "every byte" in shown(str(folder), "--verify")
    (folder / "model.so").write_bytes(bytes((folder / "model.so").stat().st_size))
    assert "sizes only" in shown(str(folder))
    with pytest.raises(ArtifactError, match=r"model\.so is damaged"):
        shown(str(folder), "--verify")


def test_another_machines_artifact_can_be_inspected(folder: Path) -> None:
    rewrite(folder, with_target(arch="aarch64", triple="aarch64-linux-android", device="vulkan"))
    assert "no: compiled for aarch64-linux-android" in shown(str(folder))


def test_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="not a compiled model"):
        shown(str(tmp_path))
