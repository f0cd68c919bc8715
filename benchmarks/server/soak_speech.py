"""Random forms of a soak over a Whisper: recordings of noise in each response format, streams that
are left or read slowly, and files that must be refused. For `soak_requests.py`'s outcomes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from benchmarks.server.soak_requests import Call

RATE = 16_000
TRANSCRIPTIONS, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
ENDS = {
    "json": '"usage"',
    "text": "text/plain",
    "srt": " --> ",
    "vtt": "WEBVTT",
    "verbose_json": '"segments"',
    "stream": "transcript.text.done",
}
"""Of each response format and of a stream: what a whole answer has."""
_BOUNDARY = "soak-boundary"
_TOO_LARGE = 26 << 20


def wav(seconds: float, seed: int, rate: int = RATE) -> bytes:
    """A WAV of noise, 16 bits and one channel; its loudness depends on the seed."""
    rng, count = random.Random(seed), int(seconds * rate)
    noise = rng.randbytes(count)  # the high bytes
    quiet = 1 + seed % 4
    samples = struct.pack(f"<{count}h", *((each - 128) * 256 // quiet for each in noise))
    return _head(len(samples), rate) + samples


def _head(size: int, rate: int = RATE, channels: int = 1) -> bytes:
    """The head of a WAV with `size` bytes of samples."""
    width = 2 * channels
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * width & 0xFFFFFFFF, width, 16)
    sizes = struct.pack("<I", size + 36), struct.pack("<I", 16), struct.pack("<I", size)
    return b"RIFF" + sizes[0] + b"WAVEfmt " + sizes[1] + form + b"data" + sizes[2]


def form(file: bytes, **fields: str) -> bytes:
    """The body of a form with this file."""
    head = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; name="
    texts = "".join(f'{head}"{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    begin = f'{texts}{head}"file"; filename="a.wav"\r\n\r\n'
    return begin.encode() + file + f"\r\n--{_BOUNDARY}--\r\n".encode()


def _call(kind: str, body: bytes, *ends: str, path: str = TRANSCRIPTIONS, **more: object) -> Call:
    content_type = f"multipart/form-data; boundary={_BOUNDARY}"
    return Call(kind, path, body, ends, content_type=content_type, **more)  # type: ignore[arg-type]


def _asked(name: str) -> dict[str, str]:
    """The fields that ask for an answer of ENDS."""
    return {"stream": "true"} if name == "stream" else {"response_format": name}


def fixed_forms(translates: bool) -> list[Call]:
    """Greedy requests of each format, of a short recording and of one of several windows."""
    names = [(name, seconds) for name in ENDS for seconds in (1.2, 5.0)]
    calls = [
        _call(
            f"same {name} of {seconds} s",
            form(wav(seconds, number), language="en", **_asked(name)),
            ENDS[name],
            same=True,
            plain=name in ("text", "srt", "vtt"),
        )
        for number, (name, seconds) in enumerate(names)
    ]
    if translates:
        body = form(wav(1.5, 77))
        calls.append(_call("same translation", body, ENDS["json"], path=TRANSLATIONS, same=True))
    return calls


def hostile_forms() -> list[Call]:
    """Forms that must be refused."""
    sound = wav(0.5, 1)
    bodies: list[tuple[str, bytes]] = [
        ("no form", b"{}"),
        ("no sound", form(b"no sound at all, but text")),
        ("empty file", form(b"")),
        ("head alone", form(sound[:30])),
        ("no channels", form(_head(2000, channels=0) + bytes(2000))),
        ("no rate", form(_head(2000, rate=0) + bytes(2000))),
        ("no language", form(sound, language="xx")),
        ("no format", form(sound, response_format="doc")),
        ("no field", form(sound, colour="red")),
        ("too hot", form(sound, temperature="9")),
        ("cut form", form(sound)[:400]),
        ("long field", form(sound, prompt="word " * 40_000)),
        ("too large", form(_head(_TOO_LARGE) + bytes(_TOO_LARGE))),
    ]
    return [_call(f"hostile: {name}", body) for name, body in bodies]


class SpeechRequests:
    """Draws the calls of a soak over a model that transcribes."""

    def __init__(self, seed: int, translates: bool) -> None:
        self._rng = random.Random(seed)
        hostile = hostile_forms()
        self.fixed = fixed_forms(translates)
        self._first = [call for call in hostile if len(call.body) > 1 << 20]
        """What needs the most memory: that it is needed once is no growth."""
        self._large = [*self._first]
        self._small = [call for call in hostile if call not in self._large]
        self._rounds: dict[bool, list[Call]] = {True: [], False: []}
        """Fixed and hostile calls that the present round of each still has."""

    def draw(self) -> Call:
        """The next call."""
        if self._first:
            return self._first.pop()
        rng = self._rng
        kinds: dict[Callable[[], Call], int] = {
            lambda: self._random("plain"): 40,
            lambda: self._random("hangs up"): 14,
            lambda: self._random("slow"): 4,
            lambda: self._next(True): 30,
            lambda: self._next(False): 12,
            lambda: rng.choice(self._large): 1,
        }
        return rng.choices([*kinds], [*kinds.values()])[0]()

    def _next(self, fixed: bool) -> Call:
        """Each in turn, in a random order."""
        calls = self.fixed if fixed else self._small
        if not self._rounds[fixed]:
            self._rounds[fixed] = self._rng.sample(calls, len(calls))
        return self._rounds[fixed].pop()

    def _random(self, kind: str) -> Call:
        """A recording that no other request has; of those that leave or are slow, a stream."""
        rng = self._rng
        name = rng.choice([*ENDS]) if kind == "plain" else "stream"
        rate = rng.choice((8_000, RATE, 44_100))
        sound = wav(rng.choice((0.3, 1.5, 3.0, 6.0)), rng.randrange(1 << 30), rate)
        fields = {**_asked(name), "temperature": rng.choice(("0", "1", "0,0.4,0.8"))}
        ends = ('"text"', "text/plain") if name == "srt" else (ENDS[name],)  # may be silent
        leaves = rng.randrange(1, 3) if kind == "hangs up" else 1 << 30
        pause = 0.05 if kind == "slow" else 0.0
        return _call(kind, form(sound, **fields), *ends, leaves_after=leaves, pause_s=pause)
