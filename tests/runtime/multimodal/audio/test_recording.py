"""Recordings as windows of frames, and where their samples are."""

from __future__ import annotations

import random
import struct
import tempfile
import tracemalloc
from array import array
from pathlib import Path

import pytest

from mlcc.errors import CapacityError
from mlcc.multimodal.audio import samples as stored
from mlcc.multimodal.audio.frames import HOP, Recording, log_mel
from mlcc.multimodal.audio.samples import StoredSamples
from mlcc.multimodal.audio.sound import decode, store

BINS, ROWS = 8, 50
WINDOW = 2 * ROWS * HOP


def noise(count: int) -> array[float]:
    rng = random.Random(count)
    return array("f", [rng.uniform(-1, 1) * (i % 5000) / 5000 for i in range(count)])


@pytest.mark.parametrize("count", [1, 190, WINDOW - 3, WINDOW, WINDOW + 1, 2 * WINDOW + 517])
def test_windows_are_those_of_all_frames(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the samples are: those of a short recording with silence behind it."""
    monkeypatch.setattr(stored, "IN_MEMORY", 4000)
    given = noise(count)
    silence = array("f", bytes(4 * max(0, WINDOW - count)))
    frames, _ = log_mel((given + silence)[: max(WINDOW, count // HOP * HOP)], BINS)
    pieces = [given[at : at + 700] for at in range(0, count, 700)]
    for samples in (given, StoredSamples(pieces)):
        assert len(samples) == count
        recording = Recording(samples, BINS, ROWS)
        assert recording.frames == len(frames) // (4 * BINS)
        for start in {0, 37, recording.frames // 2, recording.frames - 1}:
            found, wanted = recording.window(start), frames[4 * BINS * start :][: 8 * BINS * ROWS]
            assert len(found) == 8 * BINS * ROWS
            pairs = zip(array("f", found), array("f", wanted), strict=False)
            assert max(abs(a - b) for a, b in pairs) < 1e-5
            assert not any(found[len(wanted) :])
    assert given == noise(count)


def test_long_recordings_take_no_memory(tmp_path: Path) -> None:
    """Two minutes are 7.7 MB of samples."""
    path, count = tmp_path / "long.wav", 120 * 16000
    form = struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16)
    head = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", 2 * count)
    tone = array("h", [i * 700 % 30000 for i in range(16000)]).tobytes()
    path.write_bytes(b"RIFF" + struct.pack("<I", len(head) + 2 * count) + head + tone * 120)
    with path.open("rb") as file:
        tracemalloc.start()
        try:
            samples = store(file)
            recording = Recording(samples, BINS, 1500)
            assert recording.window(4000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 6_500_000 < 4 * count
        file.seek(0)
        assert samples[count - 5 : count + 9] == decode(file)[-5:]


def test_no_room_for_samples_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda size: full)
    with pytest.raises(CapacityError, match=r"No space left on device.*set TMPDIR"):
        StoredSamples([noise(10)])
