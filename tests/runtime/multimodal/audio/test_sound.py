"""Files of recordings: what they decode to, and what is refused."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import struct
import sys
import wave
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.multimodal.audio import frames, sound
from mlcc.multimodal.audio.gemma3n import gemma3n_frames, gemma3n_rows, gemma3n_wanted
from mlcc.multimodal.audio.sound import decode
from mlcc.multimodal.audio.usm import frame_count, usm_frames, usm_rows
from mlcc.util import executor_library

VALUES = [0.0, 0.5, -0.5, 0.25, -1.0, 0.125]


def wav(
    values: list[float], width: int = 2, channels: int = 1, rate: int = 16000, kind: int = 1
) -> io.BytesIO:
    """A WAV of PCM with `width` bytes a sample, or of floats (kind 3)."""
    if kind == 3:
        data = struct.pack(f"<{len(values)}f", *values)
        width = 4
    elif width == 1:
        data = bytes(int(value * 127) + 128 for value in values)
    else:
        most = (1 << (8 * width - 1)) - 1
        data = b"".join(int(v * most).to_bytes(width, "little", signed=True) for v in values)
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * width, channels * width, 8 * width)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data"
    chunks += struct.pack("<I", len(data)) + data
    return io.BytesIO(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)


@pytest.mark.parametrize(("width", "bound"), [(1, 2e-2), (2, 1e-4), (3, 1e-6), (4, 1e-7)])
def test_every_width_of_pcm(width: int, bound: float) -> None:
    found = decode(wav(VALUES, width))
    assert max(abs(a - b) for a, b in zip(found, VALUES, strict=True)) < bound


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("form", ["WAV", "WAVEX", "RF64"])
def test_samples_are_those_of_libsndfile(form: str, subtype: str) -> None:
    soundfile = pytest.importorskip("soundfile", reason="soundfile: pip install 'mlcc[audio]'")
    rows = [(math.sin(i / 9) / 2, math.cos(i / 5) / 3, i / 4000) for i in range(3000)]
    written: Any = io.BytesIO()
    soundfile.write(written, rows, 16000, subtype, format=form)
    data = written.getvalue()
    wanted = soundfile.read(io.BytesIO(data), dtype="float32")[0].mean(axis=1, dtype="float32")
    found = decode(io.BytesIO(data))
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) < 1e-7


def test_floats_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"damaged WAV file .*no numbers"):
        decode(wav([0.5, math.nan, 0.25], kind=3))


def test_a_size_that_was_never_written_is_to_the_end() -> None:
    data = wav(VALUES).getvalue()
    at = data.index(b"data") + 4
    assert len(decode(io.BytesIO(data[:at] + b"\xff" * 4 + data[at + 4 :]))) == len(VALUES)


def test_channels_are_mixed() -> None:
    both = [value for pair in zip(VALUES, [0.0] * len(VALUES), strict=True) for value in pair]
    found = decode(wav(both, channels=2))
    assert max(abs(a - b / 2) for a, b in zip(found, VALUES, strict=True)) < 1e-4


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_a_tone_stays_the_tone_at_another_rate(rate: int) -> None:
    tone = [0.5 * math.sin(2 * math.pi * 440 * i / rate) for i in range(rate // 2)]
    found = decode(wav(tone, rate=rate))
    assert len(found) == 8000
    wanted = [0.5 * math.sin(2 * math.pi * 440 * i / 16000) for i in range(8000)]
    assert max(abs(a - b) for a, b in zip(found[500:-500], wanted[500:-500], strict=True)) < 1e-3


def test_what_lies_above_half_the_rate_is_gone() -> None:
    tone = [0.5 * math.sin(2 * math.pi * 11000 * i / 48000) for i in range(24000)]
    assert max(map(abs, decode(wav(tone, rate=48000))[500:-500])) < 1e-3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no WAV"),
        (b"hello there, this is text", "is no WAV.*ffmpeg"),
        (b"\0\0\0\x20ftypM4A isom", r"is M4A, which needs av.*mlcc\[av\].*ffmpeg"),
        (b"\x1aE\xdf\xa3 webm and more", "is WebM"),
        (wav(VALUES).getvalue()[:20], "is a damaged WAV|damaged"),
        (wav([]).getvalue(), "holds no samples"),
        (wav(VALUES, rate=7).getvalue(), "has 7 samples a second"),
    ],
)
def test_what_is_no_recording_is_refused_by_name(
    data: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InvalidRequestError, match=words) as caught:
        decode(io.BytesIO(data))
    assert caught.value.param == "file"


RECORDED = (
    ("ipod", "aac", 44100),
    ("adts", "aac", 48000),
    ("webm", "libopus", 48000),
    ("caf", "alac", 44100),
    ("aiff", "pcm_s16be", 22050),
)
"""FFmpeg's names of a format and a codec, and samples a second: the first is M4A."""


@pytest.mark.parametrize(("form", "codec", "rate"), RECORDED)
def test_what_phones_and_browsers_record(
    form: str, codec: str, rate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are PyAV's own of two channels, of which the mean is taken."""
    av: Any = pytest.importorskip("av", reason="PyAV: pip install 'mlcc[av]'")
    data = recorded(av, form, codec, rate)
    frames_of = av.open(io.BytesIO(data)).decode(audio=0)
    floats = [frame for each in frames_of for frame in av.AudioResampler("fltp").resample(each)]
    planes = [[array("f", bytes(f.planes[c])[: 4 * f.samples]) for f in floats] for c in (0, 1)]
    both = zip(*(itertools.chain(*each) for each in planes), strict=True)
    whole = joined(frames.resampled([array("f", [sum(pair) / 2 for pair in both])], rate))
    found = decode(io.BytesIO(data))
    assert len(found) == len(whole) > 8000
    assert max(abs(a - b) for a, b in zip(found, whole, strict=True)) < 1e-6
    assert max(map(abs, found)) > 0.3
    with pytest.raises(InvalidRequestError, match=r"damaged|has 0 samples a second"):
        decode(io.BytesIO(data[:40]))
    monkeypatch.setattr(sound, "MOST_SECONDS", 0)
    with pytest.raises(InvalidRequestError, match="minutes long"):
        decode(io.BytesIO(data))


def recorded(av: Any, form: str, codec: str, rate: int) -> bytes:
    """Half a second and more of a tone in two channels, by PyAV."""
    made = io.BytesIO()
    with av.open(made, "w", format=form) as file:
        stream = file.add_stream(codec, rate=rate, layout="stereo")
        size = stream.codec_context.frame_size or 1024
        fit = av.AudioResampler(stream.codec_context.codec.audio_formats[0].name, "stereo", rate)
        for start in range(0, rate * 2 // 3, size):
            tone = [
                0.5 * math.sin(2 * math.pi * 440 * i / rate) for i in range(start, start + size)
            ]
            frame = av.AudioFrame("fltp", "stereo", size)
            frame.sample_rate, frame.pts = rate, start
            for plane, loud in zip(frame.planes, (1.0, 0.6), strict=True):
                data = array("f", [loud * value for value in tone]).tobytes()
                plane.update(data + bytes(plane.buffer_size - len(data)))
            for each in fit.resample(frame):
                file.mux(stream.encode(each))
        file.mux(stream.encode(None))
    return made.getvalue()


def test_more_than_two_hours_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound, "MOST_SECONDS", 1)
    with pytest.raises(InvalidRequestError, match="minutes long"):
        decode(wav([0.0] * 16001))
    assert len(decode(wav([0.0] * 16000))) == 16000


def test_more_channels_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small FLAC of silence may hold hours of many channels."""
    monkeypatch.setattr(sound, "MOST_SAMPLES", 20)
    assert len(decode(wav([0.0] * 20, channels=2))) == 10
    with pytest.raises(InvalidRequestError, match=r"has 3 channels of 7 samples.*ffmpeg"):
        decode(wav([0.0] * 21, channels=3))


def joined(pieces: Iterable[array[float]]) -> array[float]:
    return sum(pieces, array("f"))


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 47999, 48000])
@pytest.mark.parametrize("seconds", [0.4, 2.0, 3.7, 6.0])
def test_blocks_are_resampled_as_the_whole(
    rate: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(rate)
    samples = array("f", [rng.uniform(-1, 1) for _ in range(int(rate * seconds))])
    whole = joined(frames.resampled([samples], rate))
    monkeypatch.setattr(frames, "BLOCK", 2 * rate)
    pieces = [samples[at : at + rate] for at in range(0, len(samples), rate)]
    assert joined(frames.resampled(pieces, rate)) == whole
    assert len(whole) == -(-len(samples) * 16000 // rate)


def test_without_soundfile_ogg_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for data in (b"OggS and more", wav(VALUES, 1, kind=6).getvalue()):
        with pytest.raises(UnsupportedError, match=r'pip install "mlcc\[audio\]"'):
            decode(io.BytesIO(data))


@pytest.mark.parametrize(("rate", "version"), [(8000, 0xE3), (16000, 0xF3), (44100, 0xFB)])
def test_mp3_of_every_version(rate: int, version: int) -> None:
    """Recordings of fewer than 32000 samples a second are MPEG-2 or 2.5."""
    soundfile = pytest.importorskip("soundfile", reason="soundfile: pip install 'mlcc[audio]'")
    written: Any = io.BytesIO()
    soundfile.write(written, [math.sin(i / 20) / 2 for i in range(rate)], rate, format="MP3")
    data = written.getvalue()
    assert data[0] == 0xFF and data[1] == version
    found = decode(io.BytesIO(data))
    assert abs(len(found) - 16000) < 4000 and 0.3 < max(found) < 0.7
    with_checksum = bytes([0xFF, version & 0xFE]) + data[2:]
    assert sound.kind_of(with_checksum) == "MP3"


def test_adts_and_text_are_no_mp3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InvalidRequestError, match="is AAC, which needs av"):
        sound.kind_of(b"\xff\xf1P\x80")
    for data in ("text".encode("utf-16"), b"\xff", b"\xff\xd8\xff\xe0"):
        with pytest.raises(InvalidRequestError, match="is no WAV, FLAC, Ogg, MP3, M4A or WebM"):
            sound.kind_of(data)


def test_python_writes_what_is_read() -> None:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(array("h", [0, 16384, -16384]).tobytes())
    made.seek(0)
    assert list(decode(made)) == [0, 0.5, -0.5]


def noise(count: int) -> array[float]:
    """The high bits of a linear congruential generator, swelling, between -1 and 1."""
    state, made = 1, array("f")
    for i in range(count):
        state = (state * 1664525 + 1013904223) % (1 << 32)
        made.append(((state >> 16) / 65536 - 0.5) * ((i % 4000) / 4000))
    return made


def test_frames_and_rates_are_those_of_the_tab() -> None:
    """The vectors of web/tests/model/sound.test.ts: transformers' frames, and samples as the sum in
    float64 has them."""
    vectors = json.loads((Path(__file__).parent / "sound_vectors.json").read_text())
    made = array("f", frames.log_mel(noise(3200), vectors["bins"])[0])
    assert max(abs(a - b) for a, b in zip(made, vectors["frames"], strict=True)) < 1e-5
    usm, wanted = vectors["usm"], vectors["usm"]["frames"]
    made = array("f", usm_frames(noise(3200), usm["bins"]))
    assert max(abs(a - b) for a, b in zip(made, wanted, strict=True)) < 1e-5
    other, wanted = vectors["gemma3n"], vectors["gemma3n"]["frames"]
    found, count = gemma3n_frames(noise(3200), other["bins"])
    assert count == len(wanted) // other["bins"]
    assert max(abs(a - b) for a, b in zip(array("f", found), wanted, strict=True)) < 1e-5
    for rate, wanted in vectors["resampled"].items():
        found = joined(frames.resampled([noise(400)], int(rate)))
        assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) < 1e-6
    for each in vectors["token_rows"]:
        tokens, heads, rows, used = each["sizes"]
        weights = noise(tokens * heads * rows).tobytes()
        begins = executor_library.load().token_rows(weights, tokens, heads, rows, used)
        assert list(begins) == each["begins"]


@pytest.mark.parametrize("samples", [161, 641, 801, 1121, 1600])
def test_rows_of_usm_are_what_both_convolutions_read(samples: int) -> None:
    """Frames of as many numbers as their place: an output beside the sound is zeros, and so is a
    bin before the first."""
    bins, count = 8, frame_count(samples)
    marked = array("f", (100 * i + bin + 1 for i in range(count) for bin in range(bins)))
    rows = array("f", usm_rows(marked.tobytes(), bins))
    places, size = bins // 2 + 2, 16
    taps = [rows[at : at + places * size] for at in range(0, len(rows), places * size)]
    assert len(taps) == 3 * -(-count // 4)
    for at, tap in enumerate(taps):
        middle = 2 * (2 * (at // 3) + at % 3 - 1)
        for place in range(places):
            for line, column in ((line, column) for line in range(3) for column in range(3)):
                frame, bin = middle - 1 + line, 2 * (place - 1) - 1 + column
                there = 0 <= middle < count and 0 <= frame < count
                there = there and 0 < place <= bins // 2 and bin >= 0
                found = tap[place * size + 3 * line + column]
                assert found == (100 * frame + bin + 1 if there else 0)
            assert not any(tap[place * size + 9 : (place + 1) * size])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 16])
def test_rows_of_gemma3n_are_what_both_convolutions_read(count: int) -> None:
    """Frames of as many numbers as their place, and a 1 where an output is there; then two rows of
    marks."""
    bins, size = 8, 16
    marked = array("f", (100 * i + bin + 1 for i in range(count) for bin in range(bins)))
    rows = array("f", gemma3n_rows(marked.tobytes(), bins))
    places, real = bins // 2 + 2, -(-count // 4)
    taps = [rows[at : at + places * size] for at in range(0, len(rows), places * size)]
    assert len(taps) == 2 * (real + 2)
    for u, tap in enumerate(taps[: 2 * real]):
        for place in range(places):
            there = 2 * u < count and 0 < place <= bins // 2
            patch = list(tap[place * size : (place + 1) * size])
            assert patch[9] == there
            assert patch[10:] == [0, 0, float(place == 0 and u % 2 == 0), 0, 0, 0]
            for line, column in ((line, column) for line in range(3) for column in range(3)):
                frame, bin = 2 * u + line, 2 * (place - 1) - 1 + column
                known = there and frame < count and bin >= 0
                assert patch[3 * line + column] == (100 * frame + bin + 1 if known else 0)
    fill, last = ([i for i, value in enumerate(tap) if value] for tap in taps[2 * real :: 2])
    assert (fill, last) == ([10], [11]) and not any(taps[2 * real + 1])


def test_every_sound_of_gemma3n_has_as_many_rows() -> None:
    assert gemma3n_wanted(9 + 2, 6, 4) == [0, 4, 8, 9, 9, 10]
    assert gemma3n_wanted(20 + 2, 6, 4) == [0, 4, 8, 12, 16, 21]
    assert gemma3n_frames(array("f", bytes(4 * 500)), 8) == (b"", 0)
