"""A Whisper compiled for CUDA, on the emulated device: transcripts, and where its words are."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcc_targets import get_target
from tests.compiler.audio.test_whisper import check_close
from tests.targets.cuda import emulation


@pytest.mark.long
@pytest.mark.usefixtures("emulated")
def test_transcripts_are_the_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulation.replace_nvcc(monkeypatch)
    before = emulation.device().emulated_launches()
    check_close(tmp_path, get_target("cuda"))
    assert emulation.device().emulated_launches() > before
