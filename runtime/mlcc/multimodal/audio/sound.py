"""Decodes a file to mono samples at 16 kHz: WAV and FLAC here, Ogg and MP3 by soundfile (the extra
`audio`), what phones and browsers record by PyAV (the extra `av`). Other formats are refused."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import IO, Any

from mlcc.errors import InvalidRequestError, MlccError
from mlcc.multimodal.audio.frames import FLOAT, RATE, SoundKernels, resampled
from mlcc.multimodal.audio.riff import open_wave
from mlcc.multimodal.audio.samples import StoredSamples
from mlcc.util.extras import advice, is_here, require

MOST_SECONDS = 2 * 60 * 60
"""The longest recording."""
MOST_SAMPLES = MOST_SECONDS * 48_000 * 2
"""Samples of all channels: a file of 25 MB may hold silence of far more."""
_HINT = "convert it with `ffmpeg -i FILE -ar 16000 -ac 1 out.wav`"
_FLAC = b"fLaC"
_BY_SOUNDFILE = {b"OggS": "Ogg", b"ID3": "MP3"}
_BY_AV = {b"\x1aE\xdf\xa3": "WebM", b"caff": "CAF", b"#!AMR": "AMR", b"FORM": "AIFF"}
_READERS = {
    "M4A": "mov", "AAC": "aac", "WebM": "matroska", "CAF": "caf", "AMR": "amr", "AIFF": "aiff"
}  # fmt: skip
"""FFmpeg's reader of each format that PyAV decodes; no other opens a file, as some of them fetch
what a file names."""
_HEAD = 16
Source = tuple[int, "Iterator[array[float]]"]
"""Samples a second, and mono samples in pieces of a second."""
_RATES = range(1000, 768001)


def decode(
    file: IO[bytes], kernels: SoundKernels | None = None, most_seconds: int | None = None
) -> array[float]:
    """Mono samples at 16 kHz of a file, between -1 and 1. kernels: None = those of
    libmlcc_executor; most_seconds: None = MOST_SECONDS. Raises InvalidRequestError for what is no
    sound, or longer, and UnsupportedError without soundfile."""
    samples = array("f")
    for piece in _pieces(file, kernels, most_seconds):
        samples += piece
    return samples


def store(file: IO[bytes]) -> StoredSamples:
    """As `decode`, for recordings of hours: their samples are in a temporary file. Raises
    CapacityError too."""
    return StoredSamples(_pieces(file))


def _pieces(
    file: IO[bytes], kernels: SoundKernels | None = None, most_seconds: int | None = None
) -> Iterator[array[float]]:
    """Mono samples at 16 kHz."""
    most = MOST_SECONDS if most_seconds is None else most_seconds
    kind, found = kind_of(file.read(_HEAD)), False
    file.seek(0)
    try:
        rate, pieces = _DECODERS.get(kind, _by_soundfile)(file, most)
        for piece in pieces if rate == RATE else resampled(pieces, rate, kernels):
            found = found or len(piece) > 0
            yield piece
    except (MlccError, MemoryError):
        raise
    except Exception as error:  # decoders raise many kinds of errors on damaged files
        raise _bad(f"is a damaged {kind} file ({error!s:.80})") from error
    if not found:
        raise _bad("holds no samples")


def kind_of(data: bytes) -> str:
    """The format of a file that begins with `data`: WAV, FLAC, Ogg, MP3 or one of _READERS. Raises
    InvalidRequestError for any other, and UnsupportedError for one whose decoder is not
    installed."""
    if data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE":
        return "WAV"
    if data[:4] == _FLAC:
        return "FLAC"
    layer = _mpeg_layer(data)
    decoded = "MP3" if layer == 3 else _marked(data, _BY_SOUNDFILE)
    if decoded:
        require("soundfile", "audio", f"{decoded} files")
        return decoded
    found = "M4A" if data[4:8] == b"ftyp" else "AAC" if layer == 0 else _marked(data, _BY_AV)
    if found is None:
        raise _bad(f"is no WAV, FLAC, Ogg, MP3, M4A or WebM; {_HINT}", "unsupported_file")
    if not is_here("av"):
        raise _bad(f"is {found}, which needs {advice('av', 'av')}, or {_HINT}", "unsupported_file")
    return found


def _marked(data: bytes, kinds: Mapping[bytes, str]) -> str | None:
    return next((kind for mark, kind in kinds.items() if data.startswith(mark)), None)


def _mpeg_layer(data: bytes) -> int | None:
    """The layer of the MPEG audio frame that `data` begins with, of any version and with or without
    a checksum (ISO/IEC 11172-3, 2.4.1.3): 3 is MP3, and 0 the ADTS frames of AAC."""
    if len(data) < 2 or data[0] != 0xFF or data[1] & 0xE0 != 0xE0:
        return None
    return (4 - (data[1] >> 1 & 3)) % 4


def _check(frames: int, rate: int, channels: int, most_seconds: int) -> None:
    if rate not in _RATES:
        raise _bad(f"has {rate} samples a second; {_HINT}")
    if frames > most_seconds * rate:
        raise _bad(
            f"is {frames / rate / 60:.0f} minutes long, and {most_seconds // 60} are the most; "
            "send it in parts"
        )
    if frames * channels > MOST_SAMPLES:
        raise _bad(f"has {channels} channels of {frames:,} samples, which are too many; {_HINT}")


def _wave(file: IO[bytes], most_seconds: int) -> Source:
    """PCM and floats, or what soundfile reads."""
    if (opened := open_wave(file)) is None:
        require("soundfile", "audio", "WAV files that are neither PCM nor floats")
        file.seek(0)
        return _by_soundfile(file, most_seconds)
    _check(opened.frames, opened.rate, opened.channels, most_seconds)
    return opened.rate, (_mono(values, opened.channels) for values in opened.pieces())


def _mono(values: array[float], channels: int) -> array[float]:
    """The mean of the channels."""
    if channels == 1:
        return values
    parts = [values[c::channels] for c in range(channels)]
    return array("f", [sum(each) / channels for each in zip(*parts)])  # noqa: B905


def _flac(file: IO[bytes], most_seconds: int) -> Source:
    from mlcc.multimodal.audio.flac import FlacFile

    opened = FlacFile(file.read())
    stream = opened.stream
    _check(stream.samples, stream.rate, stream.channels, most_seconds)
    return stream.rate, opened.pieces(min(most_seconds * stream.rate, MOST_SAMPLES))


def _by_soundfile(file: IO[bytes], most_seconds: int) -> Source:
    import soundfile

    opened: Any = soundfile.SoundFile(file)
    rate: int = opened.samplerate
    _check(opened.frames, rate, opened.channels, most_seconds)
    blocks = opened.blocks(rate, dtype="float32", always_2d=True)
    return rate, (array("f", each.mean(axis=1, dtype="float32").tobytes()) for each in blocks)


def _by_av(file: IO[bytes], most_seconds: int, reader: str) -> Source:
    import av

    opened: Any = av.open(file, format=reader)
    if not opened.streams.audio:
        raise _bad("holds no sound")
    stream = opened.streams.audio[0]
    known = int(opened.duration or 0) * stream.rate // av.time_base
    _check(known, stream.rate, stream.channels, most_seconds)
    return stream.rate, _decoded(av.AudioResampler(format="flt"), opened, stream, most_seconds)


def _decoded(floats: Any, opened: Any, stream: Any, most_seconds: int) -> Iterator[array[float]]:
    """Mono samples, of a file that may be longer than it says. floats: makes them floats."""
    count, channels = 0, stream.channels
    for packed in chain(opened.decode(stream), (None,)):
        for frame in floats.resample(packed):
            values = array("f", bytes(frame.planes[0])[: FLOAT * channels * frame.samples])
            count += frame.samples
            _check(count, stream.rate, channels, most_seconds)
            yield _mono(values, channels)


_DECODERS: dict[str, Callable[[IO[bytes], int], Source]] = {
    "WAV": _wave,
    "FLAC": _flac,
    **{kind: partial(_by_av, reader=reader) for kind, reader in _READERS.items()},
}
"""By format; soundfile decodes the others."""


def _bad(why: str, code: str = "invalid_file") -> InvalidRequestError:
    return InvalidRequestError(f"the file {why}", param="file", code=code)
