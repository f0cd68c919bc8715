"""Ollama's routes that generate: /api/chat and /api/generate. Shapes are in `mlcc.api.ollama`;
routes about models are in `ollama_models.py`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

from mlcc.api.ollama.answer import Durations, Line, Lines, error_line, whole
from mlcc.api.ollama.fields import CHAT, GENERATE, TEXT_GENERATE
from mlcc.api.ollama.request import (
    CHAT_NAMES,
    GENERATE_NAMES,
    chat_body,
    generate_body,
    generate_chat_body,
    is_chat,
    model_name,
)
from mlcc.api.schema.unknown_fields import merged_headers
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.service.generate import Generation, generate_chat, generate_completion
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import OLLAMA_CHAT, OLLAMA_GENERATE
from mlcc.service.http.types import ApiRequest, ApiResponse, json_response, lines_response, to_json
from mlcc.service.protocols.ollama_models import abilities, since
from mlcc.service.served_model import ServedModel


async def chat(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /api/chat."""
    started = time.monotonic_ns()
    body = await served.body(request)
    fields, ignored = await served.checked(request, body, CHAT.fields_of, CHAT)
    name = _checked(served, fields)
    lines = Lines(name, since(time.time()), chat=True)
    if not fields.get("messages"):
        return _loaded(lines, fields, ignored)
    chat_fields = await request.offload.check(partial(chat_body, fields, served.sees))
    generation = await generate_chat(served, request, chat_fields, CHAT_NAMES)
    return await _answered(generation, lines, started, fields, ignored)


async def generate(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /api/generate."""
    started = time.monotonic_ns()
    body = await served.body(request)
    table = GENERATE if served.sees else TEXT_GENERATE
    fields, ignored = await served.checked(request, body, table.fields_of, table)
    name = _checked(served, fields)
    lines = Lines(name, since(time.time()), chat=False)
    if not fields.get("prompt") and not fields.get("images"):
        return _loaded(lines, fields, ignored)
    if is_chat(fields):
        chat_fields = generate_chat_body(fields, served.sees)
        generation = await generate_chat(served, request, chat_fields, GENERATE_NAMES)
    else:
        raw = generate_body(fields)
        generation = await generate_completion(served, request, raw, GENERATE_NAMES)
    return await _answered(generation, lines, started, fields, ignored)


def _checked(served: ServedModel, fields: Mapping[str, Any]) -> str:
    """The name to answer under. Raises NotFoundError for another model, UnsupportedError if
    reasoning is requested of a model without it."""
    name = fields.get("model", "")
    served.check_model(model_name(name, served.text.name))
    if fields.get("think") and "thinking" not in abilities(served.text):
        raise UnsupportedError(
            f"'{served.text.name}' does not support thinking, by its chat template; leave 'think' "
            "out, or load a model that does",
            param="think",
            code="no_thinking",
        )
    return name or served.text.name


def _loaded(lines: Lines, fields: Mapping[str, Any], ignored: Mapping[str, str]) -> ApiResponse:
    """The answer to a request without a prompt, by which clients load or unload a model."""
    if fields.get("keep_alive") in (0, "0", "0s"):
        raise InvalidRequestError(
            "'keep_alive' 0 unloads nothing here; of several models type `mlcc stop MODEL`, or end "
            "the server",
            param="keep_alive",
            code="always_loaded",
        )
    return json_response(lines.nothing("load"), headers=ignored)


async def _answered(
    generation: Generation,
    lines: Lines,
    started: int,
    fields: Mapping[str, Any],
    ignored: Mapping[str, str],
) -> ApiResponse:
    ignored = merged_headers(ignored, generation.ignored)
    made, job = _lines(generation, lines, started), generation.job
    if fields.get("stream", True):
        await generation.accepted()
        return lines_response(_written(generation, made), job.close, lambda: job.failure, ignored)
    try:
        parts = [line async for line in made]
    finally:
        job.close()
    return await generation.written(partial(whole, parts), ignored)


async def _lines(generation: Generation, lines: Lines, started: int) -> AsyncIterator[Line]:
    first = 0
    async for chunk in generation.stream():
        for line in lines.take(chunk):
            first = first or time.monotonic_ns()
            yield line
    ended = time.monotonic_ns()
    for line in lines.end(Durations(ended - started, (first or ended) - started)):
        yield line


async def _written(generation: Generation, lines: AsyncIterator[Line]) -> AsyncIterator[str]:
    """Each line as JSON; a failure is the last one."""
    try:
        async for line in lines:
            yield f"{to_json(line)}\n"
    except MlccError as error:
        generation.job.failure = error
        yield f"{to_json(error_line(error))}\n"


HANDLERS: Handlers = {OLLAMA_CHAT: chat, OLLAMA_GENERATE: generate}
