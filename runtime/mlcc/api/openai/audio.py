"""OpenAI's transcriptions and translations: the fields of the form, and the forms of the answer."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import InvalidRequestError, UnsupportedError

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
FIELDS = ("file", "model", "language", "prompt", "response_format", "temperature", "stream")
GRANULARITIES = ("timestamp_granularities[]", "timestamp_granularities")
_IGNORED = ("user", "chunking_strategy")
"""Fields that change no answer here: sound is cut where the model says that it ended a segment."""


@dataclass(frozen=True)
class TranscriptionFields:
    """The checked fields beside the file."""

    model: str | None = None
    language: str | None = None
    """ISO 639-1; None = as the model finds."""
    prompt: str = ""
    """Text that came before, as far as the model is concerned."""
    response_format: str = "json"
    temperature: float = 0.0
    stream: bool = False
    segments: bool = True
    """Whether the answer of verbose_json has its segments."""

    @property
    def timed(self) -> bool:
        """Whether the answer has times."""
        return self.response_format not in ("json", "text")


@dataclass(frozen=True)
class Segment:
    """A part of a transcript. Times are in seconds from the recording's beginning."""

    start: float
    end: float
    text: str
    tokens: Sequence[int] = ()
    logprob: float = 0.0
    """The mean of its window's tokens."""
    seek: int = 0
    """The frame at which its window began."""


@dataclass(frozen=True)
class Transcript:
    """A whole transcript."""

    task: str
    language: str
    seconds: float
    """Of the recording."""
    segments: Sequence[Segment] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments).strip()


def fields_of(form: Mapping[str, Sequence[str]]) -> TranscriptionFields:
    """The fields of a form. Raises InvalidRequestError, and UnsupportedError for what is not
    built."""
    one = {name: values[-1] for name, values in form.items() if values}
    for name in form:
        if name not in (*FIELDS, *GRANULARITIES, *_IGNORED):
            raise InvalidRequestError(
                f"'{name[:80]}' is no field of a transcription; leave it out",
                param=name[:80],
                code="unknown_parameter",
            )
    written = one.get("response_format") or "json"
    if written not in FORMATS:
        raise _wrong("response_format", f"one of {', '.join(FORMATS)}", written)
    parts = [value for name in GRANULARITIES for value in form.get(name, ())]
    if "word" in parts:
        raise UnsupportedError(
            "times of words are not built; ask for those of segments",
            param="timestamp_granularities",
            code="unsupported_parameter",
        )
    if any(part != "segment" for part in parts):
        raise _wrong("timestamp_granularities", "'segment'", parts[0])
    stream = one.get("stream", "false").lower()
    if stream not in ("true", "false", "1", "0"):
        raise _wrong("stream", "true or false", stream)
    return TranscriptionFields(
        one.get("model"),
        one.get("language") or None,
        one.get("prompt", ""),
        written,
        _temperature(one.get("temperature") or "0"),
        stream in ("true", "1"),
    )


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise _wrong("temperature", "a number from 0 to 1", text)
    return value


def _wrong(name: str, wants: str, value: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{name}' must be {wants}, got '{value[:40]}'", param=name, code="invalid_value"
    )


def written(transcript: Transcript, form: str) -> str | dict[str, Any]:
    """The transcript in a response format: text, or JSON."""
    if form == "text":
        return transcript.text + "\n"
    if form == "srt":
        return _srt(transcript.segments)
    if form == "vtt":
        return _vtt(transcript.segments)
    usage = usage_of(transcript.seconds)
    if form == "json":
        return {"text": transcript.text, "usage": usage}
    return {
        "task": transcript.task,
        "language": transcript.language,
        "duration": transcript.seconds,
        "text": transcript.text,
        "segments": [_segment(i, each) for i, each in enumerate(transcript.segments)],
        "usage": usage,
    }


def usage_of(seconds: float) -> dict[str, Any]:
    """What is counted of a recording."""
    return {"type": "duration", "seconds": round(seconds)}


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    text = segment.text.encode()
    return {
        "id": number,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": [*segment.tokens],
        "avg_logprob": segment.logprob,
        "compression_ratio": len(text) / len(zlib.compress(text)) if text else 0.0,
    }


def _srt(segments: Sequence[Segment]) -> str:
    return "".join(
        f"{i}\n{clock(s.start, ',')} --> {clock(s.end, ',')}\n{s.text.strip()}\n\n"
        for i, s in enumerate(segments, 1)
    )


def _vtt(segments: Sequence[Segment]) -> str:
    parts = (f"{clock(s.start)} --> {clock(s.end)}\n{s.text.strip()}\n\n" for s in segments)
    return "WEBVTT\n\n" + "".join(parts)


def clock(seconds: float, mark: str = ".") -> str:
    """A time as subtitles have it: 00:01:02.500."""
    whole = round(seconds * 1000)
    minutes, rest = divmod(whole, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{mark}{rest % 1000:03}"
