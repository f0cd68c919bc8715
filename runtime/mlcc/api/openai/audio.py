"""OpenAI's transcriptions and translations: the fields of the form, and the forms of the answer."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any

from mlcc.errors import InvalidRequestError, UnsupportedError

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
FIELDS = (
    *("file", "model", "language", "prompt", "response_format", "temperature", "temperature[]"),
    *("stream", "condition_on_previous_text", "compression_ratio_threshold", "logprob_threshold"),
    "no_speech_threshold",
)
MOST_TEMPERATURES = 8
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
    temperatures: tuple[float, ...] = (0.0,)
    """Of several the next one is tried where a window's text is no good by the thresholds."""
    stream: bool = False
    segments: bool = True
    """Whether the answer of verbose_json has its segments."""
    words: bool = False
    """Whether it has words with their times; of srt and vtt, whether a title is a word."""
    carries_text: bool = False
    """condition_on_previous_text: the text before a window is its prompt."""
    compression_ratio_threshold: float = 2.4
    """A text that zlib shrinks by more repeats itself."""
    logprob_threshold: float = -1.0
    """Least mean of the tokens' log-probabilities."""
    no_speech_threshold: float | None = None
    """A window with less is left out if silence is likelier than this; None = no window is."""

    @property
    def timed(self) -> bool:
        """Whether the answer has times."""
        return self.response_format not in ("json", "text")


@dataclass(frozen=True)
class TimedWord:
    """A word with the marks around it. Times are in seconds from the recording's beginning."""

    start: float
    end: float
    text: str


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
    temperature: float = 0.0
    words: Sequence[TimedWord] = ()
    """If they were asked for."""


@dataclass(frozen=True)
class Transcript:
    """A whole transcript."""

    task: str
    language: str
    seconds: float
    """Of the recording."""
    segments: Sequence[Segment] = field(default_factory=list)

    @property
    def words(self) -> list[TimedWord]:
        return [word for segment in self.segments for word in segment.words]

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
    given = [value for name in GRANULARITIES for value in form.get(name, ())]
    parts = [part for value in given for part in value.split(",") if part]
    for part in parts:
        if part not in ("segment", "word"):
            raise _wrong("timestamp_granularities", "'segment' or 'word'", part)
    words, stream = "word" in parts, _flag(one, "stream")
    if words and (stream or written in ("json", "text")):
        raise UnsupportedError(
            "times of words are in the formats verbose_json, srt and vtt, and in no stream; add "
            "response_format=verbose_json",
            param="timestamp_granularities",
            code="unsupported_parameter",
        )
    given = [*form.get("temperature", ()), *form.get("temperature[]", ())]
    texts = [text for each in given for text in each.split(",")]
    silence = _number(one, "no_speech_threshold", 1.0) if one.get("no_speech_threshold") else None
    if silence is not None and not 0.5 <= silence <= 1:
        raise _wrong("no_speech_threshold", "a number from 0.5 to 1", str(silence))
    return TranscriptionFields(
        one.get("model"),
        one.get("language") or None,
        one.get("prompt", ""),
        written,
        _temperatures([text for text in texts if text.strip()] or ["0"]),
        stream,
        segments=not words or "segment" in parts,
        words=words,
        carries_text=_flag(one, "condition_on_previous_text"),
        compression_ratio_threshold=_number(one, "compression_ratio_threshold", 2.4),
        logprob_threshold=_number(one, "logprob_threshold", -1.0),
        no_speech_threshold=silence,
    )


def _flag(one: Mapping[str, str], name: str) -> bool:
    text = one.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise _wrong(name, "true or false", text)
    return text in ("true", "1")


def _number(one: Mapping[str, str], name: str, default: float) -> float:
    text = one.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise _wrong(name, "a number", text)
    return value


def _temperatures(texts: Sequence[str]) -> tuple[float, ...]:
    values = tuple(_number({"temperature": text}, "temperature", 0.0) for text in texts)
    if not all(0 <= value <= 1 for value in values):
        raise _wrong("temperature", "a number from 0 to 1", ",".join(texts))
    if len(values) > MOST_TEMPERATURES:
        raise _wrong("temperature", f"at most {MOST_TEMPERATURES} numbers", ",".join(texts))
    return values


def _wrong(name: str, wants: str, value: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"'{name}' must be {wants}, got '{value[:40]}'", param=name, code="invalid_value"
    )


def written(transcript: Transcript, fields: TranscriptionFields) -> str | dict[str, Any]:
    """The transcript in the response format: text, or JSON."""
    form = fields.response_format
    titles = transcript.words if fields.words else transcript.segments
    if form == "text":
        return transcript.text + "\n"
    if form == "srt":
        return _srt(titles)
    if form == "vtt":
        return _vtt(titles)
    usage = usage_of(transcript.seconds)
    if form == "json":
        return {"text": transcript.text, "usage": usage}
    found: dict[str, Any] = {
        "task": transcript.task,
        "language": transcript.language,
        "duration": transcript.seconds,
        "text": transcript.text,
    }
    if fields.words:
        found["words"] = [
            {"word": word.text, "start": word.start, "end": word.end} for word in titles
        ]
    if fields.segments:
        found["segments"] = [_segment(i, each) for i, each in enumerate(transcript.segments)]
    return {**found, "usage": usage}


def usage_of(seconds: float) -> dict[str, Any]:
    """What is counted of a recording."""
    return {"type": "duration", "seconds": round(seconds)}


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    return {
        "id": number,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": [*segment.tokens],
        "avg_logprob": segment.logprob,
        "compression_ratio": compression_ratio(segment.text),
        "temperature": segment.temperature,
    }


def compression_ratio(text: str) -> float:
    """Bytes of a text for each byte of it as zlib has it; 0.0 = it is empty."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0


def _srt(segments: Sequence[Segment | TimedWord]) -> str:
    return "".join(
        f"{i}\n{clock(s.start, ',')} --> {clock(s.end, ',')}\n{s.text.strip()}\n\n"
        for i, s in enumerate(segments, 1)
    )


def _vtt(segments: Sequence[Segment | TimedWord]) -> str:
    parts = (f"{clock(s.start)} --> {clock(s.end)}\n{s.text.strip()}\n\n" for s in segments)
    return "WEBVTT\n\n" + "".join(parts)


def clock(seconds: float, mark: str = ".") -> str:
    """A time as subtitles have it: 00:01:02.500."""
    whole = round(seconds * 1000)
    minutes, rest = divmod(whole, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{mark}{rest % 1000:03}"
