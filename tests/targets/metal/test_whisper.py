"""A Whisper compiled for Metal, on the emulated device: transcripts, and where its words are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.audio.test_whisper import check_close
from tests.targets.metal import emulation


@pytest.mark.long
def test_transcripts_are_the_references(tmp_path: Path, emulated: None) -> None:
    before = emulation.device().emulated_launches()
    check_close(tmp_path, emulation.row())
    assert emulation.device().emulated_launches() > before
