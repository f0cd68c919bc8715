"""Transcripts of recordings, window by window, through the engine: each window is a request.

As transformers' long form (Whisper's own; Radford et al., 2022): what is longer than a window is
transcribed with timestamps, and the next window begins where the last whole segment ended.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import sha256
from math import exp

from mlcc.api.openai.audio import Segment, Transcript, TranscriptionFields, compression_ratio
from mlcc.artifact.schema import AudioInfo
from mlcc.engine.events import TextDelta
from mlcc.engine.request import AudioWindow, Request, SamplingParams
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.multimodal.audio.timestamps import TIMESTAMPS
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

    async def transcript(self, samples: array[float]) -> Transcript:
        """The whole transcript. Raises MlccError."""
        segments = [segment async for segment in self.segments(samples)]
        seconds = len(samples) / 16000
        return Transcript(self.task, self.language, seconds, segments)

    async def segments(self, samples: array[float]) -> AsyncIterator[Segment]:
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
            tokens, logprob, temperature = await self._heard(window, beginning, timed)
            count = min(whole, recording.frames - seek)
            carries = self._fields.carries_text and temperature < LOW_TEMPERATURE
            if await self._is_silent(window, beginning, logprob):
                seek += count
                continue
            found, step, kept = _split(tokens, self.info, count) if timed else ([], count, tokens)
            before += kept
            if not timed:
                text_only = [t for t in tokens if t < self.info.first_timestamp]
                found = [(0.0, recording.seconds, text_only)]
            for start, end, ids in found:
                at, text = seek / FRAMES, self._served.text.tokenizer.decode(ids)
                yield Segment(at + start, at + end, text, ids, logprob, seek, temperature)
            seek += step

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
        (token,), _ = await self._answer([self.info.start_id], sampling, window, None)
        return next((code for code, each in self.info.languages.items() if each == token), "en")

    async def _heard(
        self, window: AudioWindow, start: Sequence[int], timed: bool
    ) -> tuple[list[int], float, float]:
        """The tokens of a window without its end, the mean of their log-probabilities, and the
        temperature: the first whose text is good by the thresholds, or the last."""
        fields = self._fields
        for temperature in fields.temperatures:
            tokens, logprob = await self._tokens(window, start, timed, temperature)
            text = [token for token in tokens if token < self.info.first_timestamp]
            ratio = compression_ratio(self._served.text.tokenizer.decode(text).strip())
            if ratio <= fields.compression_ratio_threshold and logprob >= fields.logprob_threshold:
                break
            if await self._is_silent(window, start, logprob):
                break
        return tokens, logprob, temperature

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
        tokens, likely = await self._answer(begin, first, window, None)
        return tokens == [self.info.no_speech_id] and exp(likely) > least

    async def _tokens(
        self, window: AudioWindow, start: Sequence[int], timed: bool, temperature: float
    ) -> tuple[list[int], float]:
        """The tokens of a window without its end, and the mean of their log-probabilities."""
        sampling = SamplingParams(**self._served.text.sampling)
        sampling = replace(sampling, temperature=temperature)
        structure = None
        if timed:
            structure = Structure("grammar", TIMESTAMPS, "timestamp_granularities")
        return await self._answer(start, sampling, window, structure)

    async def _answer(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        window: AudioWindow,
        structure: Structure | None,
    ) -> tuple[list[int], float]:
        self._requests += 1
        request = Request(
            f"{self._name}-{self._requests}",
            prompt,
            sampling,
            tenant=self._request.tenant,
            structure=structure,
            background=self._request.background,
            audio=window,
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
        return [t for t in ids if t not in ends], sum(logprobs) / max(1, len(logprobs))


Timed = tuple[float, float, list[int]]
"""Start and end within a window, in seconds, and tokens of text."""


def _split(
    tokens: Sequence[int], info: AudioInfo, frames: int
) -> tuple[list[Timed], int, Sequence[int]]:
    """The segments of a window of `frames`, the frames after which the next window begins, and the
    tokens before that, with timestamps."""
    first = info.no_timestamps_id + 1
    text = [t for t in tokens if t < first]
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
        part = tokens[begin:end]
        ids = [t for t in part if t < first]
        if ids:
            found.append(((part[0] - first) / 50, (part[-1] - first) / 50, ids))
        begin = end
    step = frames if alone else max(2, 2 * (tokens[begin - 1] - first))
    return found, step, tokens[:begin]
