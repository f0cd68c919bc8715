"""Transcripts of recordings, window by window, through the engine: each window is a request.

As transformers' long form (Whisper's own; Radford et al., 2022): what is longer than a window is
transcribed with timestamps, and the next window begins where the last whole segment ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import sha256
from math import exp
from typing import NamedTuple

from mlcc.api.openai.audio import (
    Segment,
    TimedWord,
    Transcript,
    TranscriptionFields,
    compression_ratio,
)
from mlcc.artifact.schema import AudioInfo
from mlcc.engine.batch.executor import no_alignment
from mlcc.engine.events import TextDelta
from mlcc.engine.request import AudioWindow, Request, SamplingParams
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.multimodal.audio.samples import Samples
from mlcc.multimodal.audio.timestamps import TIMESTAMPS
from mlcc.multimodal.audio.words import words_of
from mlcc.service.engine_client import Job
from mlcc.service.http.types import ApiRequest
from mlcc.service.served_model import ServedModel

FRAMES = 100
"""Frames a second; a row of the tower, and so a timestamp, is two."""
LOW_TEMPERATURE = 0.5
"""Below it, text is carried over to the next window."""
LANGUAGE_BIAS = 100.0
"""Added to the logits of languages, so that one of them is taken."""


def audio_of(served: ServedModel) -> AudioInfo:
    """The model's audio record. Raises UnsupportedError for one that hears nothing."""
    if (info := served.text.audio) is None:
        raise UnsupportedError(
            f"'{served.text.name}' hears nothing; serve a Whisper (`mlcc compile WHISPER`)",
            param="model",
            code="no_audio",
        )
    return info


class Transcriber:
    """The transcript of one request. task: transcribe or translate."""

    def __init__(
        self, served: ServedModel, request: ApiRequest, fields: TranscriptionFields, task: str
    ) -> None:
        self.info = audio_of(served)
        if fields.words and not self.info.alignment_heads:
            raise no_alignment()
        self.task, self._served, self._request, self._fields = task, served, request, fields
        self._left = served.clock(request, time.monotonic(), None)
        self._name = f"audio-{os.urandom(16).hex()}"
        self._requests = 0
        self._job: Job | None = None
        self.language = self._language(fields.language)
        """ISO 639-1; "" until it is found."""

    def close(self) -> None:
        """Cancel the window that is being transcribed. Idempotent."""
        if self._job is not None:
            self._job.close()

    def _language(self, wanted: str | None) -> str:
        known = self.info.languages
        if not known:
            if self.task == "translate" or wanted not in (None, "en", "english"):
                raise UnsupportedError(
                    f"'{self._served.text.name}' knows English only; use a Whisper without '.en'",
                    param="language",
                    code="unsupported_parameter",
                )
            return "en"
        if wanted is not None and wanted.lower() not in known:
            raise InvalidRequestError(
                f"'language' is '{wanted[:40]}', and the model's are {', '.join(sorted(known))}",
                param="language",
                code="invalid_value",
            )
        return wanted.lower() if wanted else ""

    async def transcript(self, samples: Samples) -> Transcript:
        """The whole transcript. Raises MlccError."""
        segments = [segment async for segment in self.segments(samples)]
        seconds = len(samples) / 16000
        return Transcript(self.task, self.language, seconds, segments)

    async def segments(self, samples: Samples) -> AsyncIterator[Segment]:
        """The segments, as they are found. Raises MlccError."""
        host = self._served.sound
        recording = await host.recording(samples, self.info.bins, self.info.rows)
        whole = 2 * self.info.rows
        is_short = recording.frames <= whole
        timed, seek = self._fields.timed or not is_short, 0
        before, carries = self._prompt(), bool(self._fields.prompt)
        while seek < recording.frames:
            window = self._window(await host.window(recording, seek))
            if not self.language:
                self.language = await self._detected(window)
            beginning = self._start(timed, before if carries else [])
            count = min(whole, recording.frames - seek)
            sound = min(whole, recording.frames_of_sound - seek)
            heard = await self._heard(window, beginning, timed, sound)
            tokens, logprob, temperature = heard.tokens, heard.logprob, heard.temperature
            carries = self._fields.carries_text and temperature < LOW_TEMPERATURE
            if await self._is_silent(window, beginning, logprob):
                seek += count
                continue
            found, step, kept = _split(tokens, self.info, count) if timed else ([], count, tokens)
            before += kept
            if not timed:
                text_only = [i for i, t in enumerate(tokens) if t < self.info.first_timestamp]
                found = [(0.0, recording.seconds, text_only)]
            for start, end, places in found:
                at, ids = seek / FRAMES, [tokens[place] for place in places]
                words = self._words(heard, places, at) if self._fields.words else []
                text = self._served.text.tokenizer.decode(ids)
                yield Segment(at + start, at + end, text, ids, logprob, seek, temperature, words)
            seek += step

    def _words(self, heard: Heard, places: Sequence[int], at: float) -> list[TimedWord]:
        """The words of a segment, whose tokens are at `places`, of a window that begins at `at`
        seconds. A token is from where the one before it is followed to where it is itself."""
        ids, found = [heard.tokens[place] for place in places], list[TimedWord]()
        for word in words_of(ids, self._served.text.tokenizer.decode, self.language):
            before, last = places[word.first] - 1, places[word.last]
            start = heard.row(before) / 50 if before >= 0 else 0.0
            end, text = heard.row(last) / 50, word.text.strip()
            if text:
                found.append(TimedWord(round(at + start, 2), round(at + end, 2), text))
        return found

    def _window(self, features: bytes) -> AudioWindow:
        return AudioWindow(self.info.rows, sha256(features).digest(), features)

    def _prompt(self) -> list[int]:
        """The tokens of the request's prompt. Raises UnsupportedError if the model takes none."""
        name = "condition_on_previous_text" if self._fields.carries_text else "prompt"
        if self.info.previous_id < 0 and (self._fields.prompt or self._fields.carries_text):
            raise UnsupportedError(f"the model takes no prompt; leave '{name}' out", param=name)
        if not self._fields.prompt:
            return []
        text = " " + self._fields.prompt.strip()
        return [*self._served.text.tokenizer.encode(text, add_special_tokens=False)]

    def _start(self, timed: bool, before: Sequence[int]) -> list[int]:
        """The tokens before the transcript. before: those of the text before the window, of which
        the last ones are taken."""
        info, ids = self.info, list[int]()
        if before:
            most = self._served.engine.capacity.context // 2 - 1
            ids = [info.previous_id, *before[-most:]]
        ids.append(info.start_id)
        if info.languages:
            task = info.transcribe_id if self.task == "transcribe" else info.translate_id
            ids += (info.languages[self.language], task)
        return ids if timed else [*ids, info.no_timestamps_id]

    async def _detected(self, window: AudioWindow) -> str:
        """The language of a window."""
        biases = tuple((token, LANGUAGE_BIAS) for token in self.info.languages.values())
        sampling = SamplingParams(temperature=0, max_tokens=1, logit_bias=biases)
        heard = await self._answer([self.info.start_id], sampling, window, None)
        (token,) = heard.tokens
        return next((code for code, each in self.info.languages.items() if each == token), "en")

    async def _heard(
        self, window: AudioWindow, start: Sequence[int], timed: bool, sound: int
    ) -> Heard:
        """The transcript of a window at the first temperature whose text is good by the thresholds,
        or at the last. sound: frames of the window that hold sound, the others are padding."""
        fields = self._fields
        for temperature in fields.temperatures:
            heard = await self._tokens(window, start, timed, temperature, sound)
            text = [token for token in heard.tokens if token < self.info.first_timestamp]
            ratio = compression_ratio(self._served.text.tokenizer.decode(text).strip())
            good = ratio <= fields.compression_ratio_threshold
            if good and heard.logprob >= fields.logprob_threshold:
                break
            if await self._is_silent(window, start, heard.logprob):
                break
        return heard

    async def _is_silent(self, window: AudioWindow, start: Sequence[int], logprob: float) -> bool:
        """Whether a window whose tokens are unlikely is left out, as the model finds no speech in
        it: above a half the token of silence is the likeliest one."""
        least = self._fields.no_speech_threshold
        if least is None or logprob >= self._fields.logprob_threshold:
            return False
        if self.info.no_speech_id < 0:
            name = "no_speech_threshold"
            raise UnsupportedError(
                f"the model has no token of silence; leave '{name}' out", param=name
            )
        first = SamplingParams(temperature=0, max_tokens=1)
        begin = start[: start.index(self.info.start_id) + 1]
        heard = await self._answer(begin, first, window, None)
        return heard.tokens == [self.info.no_speech_id] and exp(heard.logprob) > least

    async def _tokens(
        self,
        window: AudioWindow,
        start: Sequence[int],
        timed: bool,
        temperature: float,
        sound: int,
    ) -> Heard:
        """What is heard in a window at a temperature."""
        sampling = SamplingParams(**self._served.text.sampling)
        sampling = replace(sampling, temperature=temperature)
        structure = None
        if timed:
            structure = Structure("grammar", TIMESTAMPS, "timestamp_granularities")
        rows = max(1, sound // 2) if self._fields.words else 0
        return await self._answer(start, sampling, window, structure, rows)

    async def _answer(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        window: AudioWindow,
        structure: Structure | None,
        aligned_rows: int = 0,
    ) -> Heard:
        self._requests += 1
        request = Request(
            f"{self._name}-{self._requests}",
            prompt,
            sampling,
            tenant=self._request.tenant,
            structure=structure,
            background=self._request.background,
            audio=window,
            aligned_rows=aligned_rows,
        )
        job = self._job = self._served.engine.submit([request], self._left())
        job.prompt_field = "file"
        ids, logprobs = list[int](), list[float]()
        try:
            async for _, event in job.events():
                if isinstance(event, TextDelta):
                    ids += event.token_ids
                    logprobs += event.logprobs
        finally:
            job.close()
        ends = self._served.text.eos_ids
        tokens, mean = [t for t in ids if t not in ends], sum(logprobs) / max(1, len(logprobs))
        return Heard(tokens, mean, sampling.temperature, job.usage()[0].token_rows)


class Heard(NamedTuple):
    """What is heard in a window."""

    tokens: list[int]
    """Without the end."""
    logprob: float
    """The mean of the tokens'."""
    temperature: float
    token_rows: Sequence[int] = ()
    """The row at which the token after each token begins, if words are wanted."""

    def row(self, token: int) -> int:
        """The row at which the token after this one begins."""
        return self.token_rows[min(token, len(self.token_rows) - 1)] if self.token_rows else 0


Timed = tuple[float, float, list[int]]
"""Start and end within a window, in seconds, and where its tokens of text are."""


def _split(
    tokens: Sequence[int], info: AudioInfo, frames: int
) -> tuple[list[Timed], int, Sequence[int]]:
    """The segments of a window of `frames`, the frames after which the next window begins, and the
    tokens before that, with timestamps."""
    first = info.no_timestamps_id + 1
    text = [i for i, t in enumerate(tokens) if t < first]
    ends = [i for i in range(1, len(tokens)) if tokens[i - 1] >= first and tokens[i] >= first]
    alone = len(tokens) > 1 and tokens[-1] >= first and tokens[-2] < first
    if not ends:
        times = [t - first for t in tokens if t >= first]
        last = times[-1] if times and times[-1] > 0 else frames // 2
        begin = times[0] if len(times) > 1 else 0
        return ([(begin / 50, last / 50, text)] if text else []), frames, tokens
    if alone:
        ends.append(len(tokens))
    found, begin = list[Timed](), 0
    for end in ends:
        places = [i for i in range(begin, end) if tokens[i] < first]
        if places:
            last = tokens[end - 1]
            found.append(((tokens[begin] - first) / 50, (last - first) / 50, places))
        begin = end
    step = frames if alone else max(2, 2 * (tokens[begin - 1] - first))
    return found, step, tokens[:begin]
