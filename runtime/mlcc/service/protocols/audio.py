"""OpenAI's transcriptions and translations of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from mlcc.api.errors import BodyTooLargeError, error_body
from mlcc.api.openai.audio import TranscriptionFields, fields_of, usage_of, written
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.multimodal.audio.samples import Samples
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import TRANSCRIPTIONS, TRANSLATIONS
from mlcc.service.http.types import (
    TEXT_TYPE,
    ApiRequest,
    ApiResponse,
    FormPart,
    events_response,
    json_response,
    to_json,
)
from mlcc.service.served_model import ServedModel
from mlcc.service.transcribe import Transcriber, audio_of

MOST_BYTES = 25 << 20
"""The largest file, OpenAI's limit."""
MOST_TEXT = 64 << 10
"""Bytes of another field."""
IN_MEMORY = 1 << 20
"""Bytes of a file that are kept in memory while it is read; more go to a temporary file."""
Form = tuple[TranscriptionFields, IO[bytes]]


async def transcribe(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/audio/transcriptions: in the language that is spoken."""
    return await _answer(served, request, "transcribe")


async def translate(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/audio/translations: in English."""
    return await _answer(served, request, "translate")


async def _answer(served: ServedModel, request: ApiRequest, task: str) -> ApiResponse:
    audio_of(served)
    if not request.background:
        served.engine.check_queue(1, request.tenant)
    fields, file = request.parsed.value if request.parsed else await read_form(request)
    with file:
        served.check_model(fields.model)
        transcriber = Transcriber(served, request, fields, task)
        samples = await served.sound.decode(file)
    if fields.stream:
        return _streamed(transcriber, samples)
    made = written(await transcriber.transcript(samples), fields)
    if isinstance(made, str):
        return ApiResponse(200, {"content-type": TEXT_TYPE}, made)
    return json_response(made)


def _streamed(transcriber: Transcriber, samples: Samples) -> ApiResponse:
    """Each segment as soon as its window is transcribed."""
    failures: list[MlccError] = []
    segments = transcriber.segments(samples)

    async def lines() -> AsyncIterator[str]:
        text = ""
        try:
            async for segment in segments:
                delta = segment.text if text else segment.text.lstrip()
                text += delta
                yield _line({"type": "transcript.text.delta", "delta": delta})
            done = {"type": "transcript.text.done", "text": text.rstrip()}
            yield _line({**done, "usage": usage_of(len(samples) / 16000)})
        except MlccError as error:
            failures.append(error)
            yield _line(error_body(error))

    return events_response(lines(), transcriber.close, lambda: next(iter(failures), None), {})


def _line(message: Any) -> str:
    return f"data: {to_json(message)}\n\n"


async def read_form(request: ApiRequest) -> Form:
    """The checked fields, and the file, at its beginning. Raises MlccError."""
    texts: dict[str, list[str]] = {}
    file: IO[bytes] = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
    found = False
    try:
        async for part in request.form(MOST_BYTES + MOST_TEXT):
            if part.name == "file":
                found = True
                await _keep(part, file)
            else:
                texts.setdefault(part.name, []).append(await _text(part))
        if not found:
            raise InvalidRequestError(
                "the form has no 'file'; send `curl -F file=@speech.wav`, or the client's `file=`",
                param="file",
                code="missing_required_parameter",
            )
        fields = fields_of(texts)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return fields, file


async def _keep(part: FormPart, file: IO[bytes]) -> None:
    size = 0
    async for piece in part.content:
        size += len(piece)
        if size > MOST_BYTES:
            raise BodyTooLargeError(
                f"the file is larger than {MOST_BYTES >> 20} MB; send it as FLAC, or in parts",
                code="file_too_large",
            )
        file.write(piece)


async def _text(part: FormPart) -> str:
    data = b""
    async for piece in part.content:
        data += piece
        if len(data) > MOST_TEXT:
            raise BodyTooLargeError(
                f"'{part.name[:80]}' is larger than {MOST_TEXT} bytes; shorten it",
                code="body_too_large",
            )
    return data.decode("utf-8", "replace")


HANDLERS: Handlers = {TRANSCRIPTIONS: transcribe, TRANSLATIONS: translate}
