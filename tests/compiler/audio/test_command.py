"""`mlcc compile` and `mlcc transcribe` of a model that hears."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.artifact.folder import Artifact
from mlcc.commands.transcribe import transcribe_command
from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.cli import compile_command
from tests.compiler.audio.checkpoints import whisper


@pytest.mark.parametrize(("more", "quant"), [([], "q8"), (["--quant", "q4"], "q4")])
def test_eight_bits_unless_asked(tmp_path: Path, more: list[str], quant: str) -> None:
    folder, out = tmp_path / "made", tmp_path / "compiled"
    folder.mkdir()
    whisper(folder)
    words = [str(folder), "-o", str(out), "--target", "reference", "--quiet", *more]
    done = CliRunner().invoke(compile_command, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert Artifact.open(out).manifest.quantization.name == quant


@pytest.mark.parametrize("heads", [[[0, 4]], [[3, 0]], [[1]], [], "all"])
def test_alignment_heads_of_another_model_are_refused(tmp_path: Path, heads: object) -> None:
    whisper(tmp_path)
    settings = tmp_path / "generation_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "alignment_heads": heads}))
    words = [str(tmp_path), "-o", str(tmp_path / "out"), "--target", "reference", "--quiet"]
    done = CliRunner().invoke(compile_command, words)
    assert isinstance(done.exception, CheckpointError)
    assert "a layer of 3 and a head of 4" in str(done.exception)


def test_words_need_a_format_with_times(tmp_path: Path) -> None:
    sound = tmp_path / "a.wav"
    sound.write_bytes(b"")
    done = CliRunner().invoke(transcribe_command, ["model", str(sound), "--words"])
    assert isinstance(done.exception, UnsupportedError)
    assert "add --format srt, vtt or verbose_json" in str(done.exception)
