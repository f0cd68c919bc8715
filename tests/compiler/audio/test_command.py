"""`mlcc compile` of a model that hears."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.artifact.folder import Artifact
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
