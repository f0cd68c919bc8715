"""FLAC by libmlcc_executor: samples are those of libFLAC (soundfile); damaged files are refused."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest

from mlcc.errors import InvalidRequestError
from mlcc.multimodal.audio import flac, sound
from mlcc.multimodal.audio.sound import decode

soundfile: Any = pytest.importorskip("soundfile", reason="soundfile: pip install 'mlcc[audio]'")

BITS = {"PCM_S8": 8, "PCM_16": 16, "PCM_24": 24}


def signal(kind: str, count: int, channels: int, bits: int) -> Any:
    """int32 samples in their highest bits, [count, channels]."""
    rng, time = np.random.default_rng(0), np.arange(count)[:, None] + 7 * np.arange(channels)
    largest = (1 << (bits - 1)) - 1
    made = {
        "tones": 0.4 * np.sin(time / 9) + 0.3 * np.sin(time * time / 5e5),
        "noise": rng.uniform(-1, 1, (count, channels)),
        "alike": 0.5 * np.sin(np.arange(count) / 5)[:, None]
        + rng.normal(0, 1e-2, (count, channels)),
        "silence": np.zeros((count, channels)),
        "even": np.round(8 * np.sin(time / 30)) / 16,
        "loudest": np.sign(np.sin(time / 3)),
    }[kind]
    return (np.round(made * largest).astype(np.int64) << (32 - bits)).astype(np.int32)


def written(samples: Any, rate: int, subtype: str, level: float) -> bytes:
    file = io.BytesIO()
    form = {"format": "FLAC", "subtype": subtype, "compression_level": level}
    soundfile.write(file, samples, rate, **form)
    return file.getvalue()


@pytest.mark.parametrize("subtype", BITS)
@pytest.mark.parametrize("kind", ["tones", "noise", "alike", "silence", "even", "loudest"])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_samples_are_those_of_libflac(kind: str, channels: int, subtype: str) -> None:
    for level, rate in ((0, 16000), (0.5, 44100), (1, 37001)):
        data = written(signal(kind, 9001, channels, BITS[subtype]), rate, subtype, level)
        opened = flac.FlacFile(data)
        assert opened.stream[:3] == (rate, channels, 9001)
        found = np.concatenate([*opened.pieces(9001)])
        wanted, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
        wanted = wanted.mean(axis=1, dtype="float32")
        assert np.abs(found - wanted).max() < 1e-7


def test_a_file_is_decoded_in_pieces() -> None:
    data = written(signal("tones", 100_000, 1, 16), 8000, "PCM_16", 0.5)
    lengths = [len(piece) for piece in flac.FlacFile(data).pieces(100_000)]
    assert sum(lengths) == 100_000 and max(lengths) < 2 * 8000
    assert len(decode(io.BytesIO(data))) == 200_000


def test_behind_the_last_frame_there_may_be_more() -> None:
    data = written(signal("noise", 5000, 1, 16), 16000, "PCM_16", 0.5)
    assert decode(io.BytesIO(data + b"TAG" + bytes(125))) == decode(io.BytesIO(data))


def without_length(data: bytes) -> bytes:
    """As written to a pipe: the 36 bits of the count of samples are 0."""
    at = 4 + 4 + 13
    return data[:at] + bytes([data[at] & 0xF0]) + bytes(4) + data[at + 5 :]


def test_a_file_may_not_say_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    data = without_length(written(signal("noise", 50_000, 1, 16), 16000, "PCM_16", 0.5))
    assert len(decode(io.BytesIO(data))) == 50_000
    monkeypatch.setattr(sound, "MOST_SAMPLES", 40_000)
    with pytest.raises(InvalidRequestError, match=r"damaged FLAC.*more than 40,000 samples"):
        decode(io.BytesIO(data))


def test_damaged_files_are_refused() -> None:
    """Each byte of a frame is under its checksum, so a changed one is found; nothing else happens
    to a file of wrong bytes."""
    data = written(signal("tones", 9000, 2, 16), 16000, "PCM_16", 0.5)
    first = flac.FlacFile(data).stream.first
    with pytest.raises(InvalidRequestError, match="damaged FLAC file"):
        decode(io.BytesIO(data[: len(data) // 2]))
    rng = random.Random(1)
    for _ in range(400):
        damaged = bytearray(data)
        damaged[rng.randrange(first, len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(InvalidRequestError, match="damaged FLAC file"):
            decode(io.BytesIO(bytes(damaged)))
    for _ in range(200):
        head = bytearray(data[: rng.randrange(4, first)])
        head[rng.randrange(4, first) % len(head)] ^= 255
        with pytest.raises(InvalidRequestError):
            decode(io.BytesIO(b"fLaC" + bytes(head[4:]) + rng.randbytes(300)))
