"""The addresses of the server: parse, encode, queue, answer. Shapes are `mlcc.api`'s."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse

from mlcc.api.errors import (
    CancelledError,
    EngineDiedError,
    NotFoundError,
    RequestTimeoutError,
    error_body,
)
from mlcc.api.requests import SamplingFields, parse_chat, parse_completion
from mlcc.api.responses import (
    Answer,
    ChatChunks,
    Chunks,
    CompletionChunks,
    Head,
    chat_completion,
    completion,
    model,
    models,
)
from mlcc.api.sampling import COMPLETION_MAX_TOKENS, to_params
from mlcc.engine.events import Finished
from mlcc.engine.request import Request as EngineRequest
from mlcc.errors import MlccError
from mlcc.model import ModelText
from mlcc.server.body import check_key, read_json
from mlcc.server.client import EngineClient
from mlcc.server.job import Job


@dataclass(frozen=True)
class Settings:
    """What the server allows."""

    api_key: str | None = None
    max_queue: int = 64
    """Requests that may wait; those being answered are not counted."""
    max_body_bytes: int = 4 << 20
    timeout_s: float = 600.0


class Routes:
    """The handlers of one served model."""

    def __init__(self, engine: EngineClient, text: ModelText, settings: Settings) -> None:
        self._engine = engine
        self._text = text
        self._settings = settings
        self._created = int(time.time())
        self.router = APIRouter()
        add = self.router.add_api_route
        add("/health", self.health, methods=["GET"], response_model=None)
        add("/v1/models", self.list_models, methods=["GET"], response_model=None)
        add("/v1/models/{name:path}", self.get_model, methods=["GET"], response_model=None)
        add("/v1/chat/completions", self.chat, methods=["POST"], response_model=None)
        add("/v1/completions", self.completions, methods=["POST"], response_model=None)

    async def health(self) -> Response:
        """200 with the engine's counters, or 503 with the reason."""
        try:
            stats = await self._engine.stats()
        except EngineDiedError as error:
            return JSONResponse({"status": "dead", **error_body(error)}, 503)
        status, engine = ("ok", asdict(stats)) if stats else ("busy", None)
        return JSONResponse({"status": status, "model": self._text.name, "engine": engine})

    async def list_models(self, request: Request) -> Response:
        """The one model."""
        check_key(request, self._settings.api_key)
        return JSONResponse(models([self._text.name], self._created))

    async def get_model(self, request: Request, name: str) -> Response:
        """The one model, by its name."""
        check_key(request, self._settings.api_key)
        self._check_model(name)
        return JSONResponse(model(name, self._created))

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        parsed = parse_chat(await self._body(request))
        self._check_model(parsed.delivery.model)
        prompt = await run_in_threadpool(self._text.encode_chat, parsed.messages)
        head = self._head("chatcmpl")
        job = self._submit(head, [prompt], parsed.sampling, None)
        if parsed.delivery.stream:
            return await _streamed(job, ChatChunks(head, parsed.delivery.include_usage))
        answers = await _complete(request, job)
        return JSONResponse(chat_completion(head, answers[0]))

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        parsed = parse_completion(await self._body(request))
        self._check_model(parsed.delivery.model)
        prompts = [await self._encode(prompt) for prompt in parsed.prompts]
        head = self._head("cmpl")
        job = self._submit(head, prompts, parsed.sampling, COMPLETION_MAX_TOKENS)
        if parsed.delivery.stream:
            return await _streamed(job, CompletionChunks(head, parsed.delivery.include_usage))
        return JSONResponse(completion(head, await _complete(request, job)))

    async def _body(self, request: Request) -> Any:
        """Parsed JSON, once it is known that the caller may ask and that there is room."""
        check_key(request, self._settings.api_key)
        self._engine.check_room(1)
        reading = read_json(request, self._settings.max_body_bytes)
        try:
            return await asyncio.wait_for(reading, self._settings.timeout_s)
        except asyncio.TimeoutError:
            raise RequestTimeoutError("the body did not come in time", code="timeout") from None

    async def _encode(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, list):
            return prompt
        return await run_in_threadpool(self._text.encode_prompt, prompt)

    def _submit(
        self, head: Head, prompts: list[list[int]], fields: SamplingFields, limit: int | None
    ) -> Job:
        params = to_params(fields, self._text.sampling, max_tokens=limit)
        requests = [
            EngineRequest(f"{head.id}-{index}", prompt, params)
            for index, prompt in enumerate(prompts)
        ]
        return self._engine.submit(requests, self._settings.timeout_s)

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._text.name:
            raise NotFoundError(
                f"this server has the model '{self._text.name}', not '{name[:80]}'",
                param="model",
                code="model_not_found",
            )

    def _head(self, prefix: str) -> Head:
        return Head(f"{prefix}-{uuid4().hex}", int(time.time()), self._text.name)


async def _complete(request: Request, job: Job) -> list[Answer]:
    """All answers, unless the client goes away first."""
    answers = asyncio.ensure_future(job.answers())
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answers, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answers.done():
            return answers.result()
        raise CancelledError("the client closed the connection")
    finally:
        answers.cancel()
        gone.cancel()
        job.close()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _streamed(job: Job, chunks: Chunks) -> Response:
    """Server-sent events. What the engine refuses is an ordinary error, before any event."""
    try:
        await job.accepted()
    except BaseException:
        job.close()
        raise
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_lines(job, chunks), headers=headers, media_type="text/event-stream")


async def _lines(job: Job, chunks: Chunks) -> AsyncIterator[str]:
    try:
        for index in range(job.size):
            if opening := chunks.start(index):
                yield _line(opening)
        async for index, event in job.events():
            if isinstance(event, Finished):
                yield _line(chunks.end(index, event.reason))
            elif event.text:
                yield _line(chunks.text(index, event.text))
        if usage := chunks.usage(job.usage()):
            yield _line(usage)
        yield "data: [DONE]\n\n"
    except MlccError as error:
        yield _line(error_body(error))
    finally:
        job.close()


def _line(message: dict[str, Any]) -> str:
    return f"data: {json.dumps(message, ensure_ascii=False, separators=(',', ':'))}\n\n"
