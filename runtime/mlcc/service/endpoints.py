"""The addresses of the API: parse, encode, queue, answer. Shapes are `mlcc.api`'s.

Every failure becomes a response here, so that each transport answers it alike.
"""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mlcc.api.errors import MethodError, NotFoundError, error_body, internal_error
from mlcc.api.fields import CHAT, COMPLETION
from mlcc.api.requests import ChatRequest, CompletionRequest, parse_chat, parse_completion
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
from mlcc.api.sampling import COMPLETION_MAX_TOKENS, to_params, with_word_ids
from mlcc.api.schema import Object
from mlcc.api.unknown import header, unknown
from mlcc.engine.request import Request, SamplingParams
from mlcc.engine.sampling import derive_seed
from mlcc.errors import MlccError
from mlcc.model.model import ModelText
from mlcc.service.addresses import (
    ADDRESSES,
    CHAT_COMPLETIONS,
    COMPLETIONS,
    HEALTH,
    MODEL,
    MODELS,
    Address,
)
from mlcc.service.body import read_json
from mlcc.service.engine import EngineClient
from mlcc.service.events import lines
from mlcc.service.exchange import (
    ApiRequest,
    ApiResponse,
    error_response,
    events_response,
    json_response,
)
from mlcc.service.job import Job
from mlcc.service.prompts import DirectPrompts, Prompts, check_built

Handler = Callable[[ApiRequest], Awaitable[ApiResponse]]
ONE_MODEL = MODEL.path.removesuffix("{name}")
_BY_PATH = {address.path: address for address in ADDRESSES if address is not MODEL}
log = logging.getLogger("mlcc.service")
MOST_LOGGED = 256
"""Unknown fields that the log names."""
PLACES = "there are /v1/chat/completions, /v1/completions, /v1/models and /health"


@dataclass(frozen=True)
class ServiceBounds:
    """What one request may ask for."""

    max_body_bytes: int = 4 << 20
    timeout_s: float | None = 600.0
    strict_fields: bool = False
    """Refuse fields that nobody here knows, instead of ignoring and naming them."""


class Service:
    """The endpoints of one model."""

    def __init__(
        self,
        engine: EngineClient,
        text: ModelText,
        bounds: ServiceBounds | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        self._engine = engine
        self._text = text
        self._bounds = bounds or ServiceBounds()
        self._prompts = prompts or DirectPrompts(text)
        self._created = int(time.time())
        self._ignored: set[str] = set()
        """Names of fields that the log has."""
        self._handlers: dict[Address, Handler] = {
            HEALTH: self._health,
            MODELS: self._list_models,
            MODEL: self._get_model,
            CHAT_COMPLETIONS: self._chat,
            COMPLETIONS: self._completions,
        }

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """The response. Raises nothing but asyncio's CancelledError, which ends the work."""
        try:
            return await self._handler(request)(request)
        except MlccError as error:
            return error_response(error)
        except Exception:
            import traceback

            traceback.print_exc()
            return error_response(internal_error())

    def _handler(self, request: ApiRequest) -> Handler:
        """Raises NotFoundError or MethodError."""
        one_model = request.path.startswith(ONE_MODEL)
        address = MODEL if one_model else _BY_PATH.get(request.path)
        place = f"{request.method} {request.path[:80]}"
        if address is None:
            raise NotFoundError(f"{place}: no such address; {PLACES}", code="not_found")
        if request.method != address.method:
            raise MethodError(f"{place}: this address takes {address.method} only", address.method)
        return self._handlers[address]

    async def _health(self, request: ApiRequest) -> ApiResponse:
        """200 with the engine's counters, or 503 with the reason."""
        try:
            counters = await self._engine.counters()
        except MlccError as error:
            return json_response({"status": "dead", **error_body(error)}, 503)
        status = "ok" if counters["engine"] else "busy"
        return json_response({"status": status, "model": self._text.name, **counters})

    async def _list_models(self, request: ApiRequest) -> ApiResponse:
        """The one model."""
        return json_response(models([self._text.name], self._created))

    async def _get_model(self, request: ApiRequest) -> ApiResponse:
        """The one model, by its name."""
        name = request.path.removeprefix(ONE_MODEL)
        self._check_model(name)
        return json_response(model(name, self._created))

    async def _chat(self, request: ApiRequest) -> ApiResponse:
        """POST /v1/chat/completions."""
        started = time.monotonic()
        body = await self._body(request)
        parsed, ignored = parse_chat(body), self._unknown(CHAT, body)
        time_left = self._time(started, parsed.delivery.timeout)
        self._check_model(parsed.delivery.model)
        context = self._engine.capacity.context
        await self._check_structure(parsed, time_left())
        prompt = await self._prompts.chat(parsed.messages, context, time_left())
        head = self._head("chatcmpl", parsed)
        job = self._submit(request, head, [prompt], parsed, None, time_left())
        if parsed.delivery.stream:
            chunks = ChatChunks(head, parsed.delivery.include_usage)
            return await _streamed(job, chunks, ignored)
        return json_response(chat_completion(head, await _answers(job)), headers=ignored)

    async def _completions(self, request: ApiRequest) -> ApiResponse:
        """POST /v1/completions."""
        started = time.monotonic()
        body = await self._body(request)
        parsed, ignored = parse_completion(body), self._unknown(COMPLETION, body)
        time_left = self._time(started, parsed.delivery.timeout)
        self._check_model(parsed.delivery.model)
        await self._check_structure(parsed, time_left())
        prompts = [await self._encode(prompt, time_left()) for prompt in parsed.prompts]
        head = self._head("cmpl", parsed)
        if parsed.echo:
            head = replace(head, echoes=[self._echo(prompt) for prompt in parsed.prompts])
        job = self._submit(request, head, prompts, parsed, COMPLETION_MAX_TOKENS, time_left())
        if parsed.delivery.stream:
            chunks = CompletionChunks(head, parsed.delivery.include_usage)
            return await _streamed(job, chunks, ignored)
        answer = completion(head, await _answers(job), parsed.delivery.n)
        return json_response(answer, headers=ignored)

    async def _body(self, request: ApiRequest) -> Any:
        """Parsed JSON, once it is known that there is room."""
        self._engine.check_room(1, request.tenant)
        return await read_json(request, self._bounds.max_body_bytes)

    def _unknown(self, table: Object, body: Any) -> dict[str, str]:
        """The header that names fields that nobody here knows; the log names each once. Raises
        InvalidRequestError for the first, if that is wanted."""
        found = unknown(table, body)
        if found and self._bounds.strict_fields:
            raise found[0]
        for error in found:
            if len(self._ignored) < MOST_LOGGED and error.message not in self._ignored:
                self._ignored.add(error.message)
                log.warning("ignored: %s", ascii(error.message)[1:-1])
        return header(found)

    async def _check_structure(
        self, parsed: ChatRequest | CompletionRequest, seconds: float | None
    ) -> None:
        """Raises MlccError if the answer cannot be held to what it must be."""
        if parsed.structure is not None:
            check_built(self._text, parsed.structure)
            await self._prompts.structure(parsed.structure, seconds)

    async def _encode(self, prompt: str | list[int], seconds: float | None) -> array[int]:
        if isinstance(prompt, list):
            return array("i", prompt)
        return await self._prompts.text(prompt, self._engine.capacity.context, seconds)

    def _time(self, started: float, wanted: float | None) -> Callable[[], float | None]:
        """The seconds that are left for a whole request; None = no bound."""
        bounds = [bound for bound in (wanted, self._bounds.timeout_s) if bound is not None]
        if not bounds:
            return lambda: None
        end = started + min(bounds)
        return lambda: max(0.0, end - time.monotonic())

    def _submit(
        self,
        request: ApiRequest,
        head: Head,
        prompts: Sequence[array[int]],
        parsed: ChatRequest | CompletionRequest,
        limit: int | None,
        seconds: float | None,
    ) -> Job:
        encode = self._text.tokenizer.encode
        wishes = with_word_ids(parsed.sampling, partial(encode, add_special_tokens=False))
        params = to_params(wishes, self._text.sampling, max_tokens=limit)
        delivery = parsed.delivery
        requests = [
            Request(
                f"{head.id}-{index}-{number}",
                prompt,
                _of_answer(params, number),
                tenant=request.tenant,
                cache_salt=delivery.cache_salt,
                structure=parsed.structure,
                family=f"{head.id}-{index}" if delivery.made > 1 else "",
                priority=delivery.priority,
            )
            for index, prompt in enumerate(prompts)
            for number in range(delivery.made)
        ]
        return self._engine.submit(requests, seconds)

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._text.name:
            raise NotFoundError(
                f"the model here is '{self._text.name}', not '{name[:80]}'; ask for it, or leave "
                "'model' out",
                param="model",
                code="model_not_found",
            )

    def _head(self, prefix: str, parsed: ChatRequest | CompletionRequest) -> Head:
        logprobs = parsed.sampling.get("logprobs") is not None
        name, made = f"{prefix}-{os.urandom(16).hex()}", parsed.delivery.made
        return Head(name, int(time.time()), self._text.name, logprobs, made)

    def _echo(self, prompt: str | list[int]) -> str:
        return prompt if isinstance(prompt, str) else self._text.tokenizer.decode(prompt)


def _of_answer(params: SamplingParams, number: int) -> SamplingParams:
    """Of several answers with one seed, each draws for itself."""
    if params.seed is None or not number:
        return params
    return replace(params, seed=derive_seed(params.seed, number))


async def _answers(job: Job) -> list[Answer]:
    """All answers, or none: whoever stops waiting cancels them."""
    try:
        return await job.answers()
    finally:
        job.close()


async def _streamed(job: Job, chunks: Chunks, headers: Mapping[str, str]) -> ApiResponse:
    """Server-sent events. What the engine refuses is an ordinary error, before any event."""
    try:
        await job.accepted()
    except BaseException:
        job.close()
        raise
    return events_response(lines(job, chunks), job.close, lambda: job.failure, headers)
