"""What the addresses of every protocol stand on: a request's body read, checked, encoded and asked
of the engine. `Asked` is what comes of it, in OpenAI's words, whole or in chunks; other protocols
translate those (`mlcc.service.protocols`).
"""

from __future__ import annotations

import logging
import os
import time
from array import array
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from mlcc.api.errors import NotFoundError
from mlcc.api.openai.embeddings import writes_nothing
from mlcc.api.openai.infill import no_infill
from mlcc.api.openai.requests import ChatRequest, CompletionRequest, parse_chat, parse_completion
from mlcc.api.openai.responses import (
    Answer,
    ChatChunks,
    Chunk,
    Chunks,
    CompletionChunks,
    Head,
    chat_completion,
    completion,
)
from mlcc.api.openai.sampling_params import (
    COMPLETION_MAX_TOKENS,
    of_answer,
    to_params,
    with_word_ids,
)
from mlcc.api.openai.shapes import ChatCompletion, Completion
from mlcc.api.schema.chat_fields import CHAT, COMPLETION
from mlcc.api.schema.schema import Object, header, unknown
from mlcc.engine.events import Finished
from mlcc.engine.request import Request
from mlcc.errors import MlccError
from mlcc.limits import default
from mlcc.model.model import ModelText
from mlcc.service.adapters import AdapterFolders
from mlcc.service.chat import ChatPlan, GenerationSpec
from mlcc.service.engine_client import EngineClient, Job, with_param
from mlcc.service.http.types import ApiRequest, read_json
from mlcc.service.prompts import DirectPrompts, Prompts, check_built
from mlcc.service.response_store.conversations import Conversations
from mlcc.util.fast_dataclass import fast_dataclass

log = logging.getLogger("mlcc.service")
MOST_LOGGED = 256
"""Unknown fields that the log names."""
MOST_COUNTED = 1 << 22
"""Tokens of a prompt that is only counted: more than a body has room for."""


@fast_dataclass(frozen=True)
class ServiceBounds:
    """What one request may ask for."""

    max_body_bytes: int = default("max_body_bytes")
    timeout_s: float | None = default("timeout_s")
    strict_fields: bool = False
    """Refuse fields that nobody here knows, instead of ignoring and naming them."""


@fast_dataclass(frozen=True)
class Generation:
    """What the engine has been asked. One of `answer` and `stream`, once; whoever stops waiting for
    `answer`, or gives a stream up and calls `close`, cancels it."""

    head: Head
    job: Job
    chunks: Chunks
    whole: Callable[[Sequence[Answer]], ChatCompletion | Completion]
    ignored: Mapping[str, str] = field(default_factory=dict)
    """The header that names fields that nobody here knows."""
    prompt_tokens: int = 0
    """Of all prompts together."""

    @property
    def matched(self) -> str | None:
        """The stop string that ended the first answer, if one did."""
        return finished.matched if (finished := self.job.finished.get(0)) else None

    async def answer(self) -> Any:
        """All answers as one ChatCompletion or Completion, or none. Raises MlccError."""
        try:
            return self.whole(await self.job.answers())
        finally:
            self.job.close()

    async def accepted(self) -> None:
        """Wait until the engine has taken it: it refuses before any chunk. Raises MlccError."""
        try:
            await self.job.accepted()
        except BaseException:
            self.job.close()
            raise

    async def stream(self) -> AsyncIterator[Chunk]:
        """The chunks, as they come. Raises MlccError where the answers end early."""
        job, chunks = self.job, self.chunks
        for index in range(job.size):
            if opening := chunks.start(index):
                yield opening
        async for index, event in job.events():
            if isinstance(event, Finished):
                for chunk in chunks.end(index, event.reason):
                    yield chunk
            elif event.text or event.token_logprobs or event.prompt_logprobs:
                for chunk in chunks.text(index, event):
                    yield chunk
        if usage := chunks.usage(job.usage()):
            yield usage


class ServedModel:
    """One model, its text side and its engine."""

    def __init__(
        self,
        engine: EngineClient,
        text: ModelText,
        bounds: ServiceBounds | None = None,
        prompts: Prompts | None = None,
        conversations: Conversations | None = None,
        aliases: Sequence[str] = (),
        folders: AdapterFolders | None = None,
    ) -> None:
        self.folders = folders or AdapterFolders()
        """Where adapters may be loaded from."""
        self.engine = engine
        self.aliases = tuple(aliases)
        """Names beside its own that it answers to."""
        self.text = text
        self.prompts = prompts or DirectPrompts(text)
        self.conversations = conversations or Conversations()
        self.created = int(time.time())
        self._bounds = bounds or ServiceBounds()
        self._ignored: set[str] = set()
        """Names of fields that the log has."""

    async def body(self, request: ApiRequest) -> Any:
        """Parsed JSON, once it is known that there is room."""
        self.engine.check_queue(1, request.tenant)
        return await read_json(request, self._bounds.max_body_bytes)

    async def chat(self, request: ApiRequest, body: Any) -> Generation:
        """A body as /v1/chat/completions takes it, asked of the engine."""
        started = time.monotonic()
        parsed, ignored = parse_chat(body), self.unknown(CHAT, body)
        time_left = self.clock(started, parsed.delivery.timeout)
        self.check_model(parsed.delivery.model)
        self.check_writes()
        context = self.engine.capacity.context
        if not parsed.use.tools:
            await self._check_structure(parsed, time_left())
        plan = ChatPlan(parsed, self.text)
        structure = await plan.structure(self.prompts, time_left)
        try:
            prompt = await self.prompts.chat(plan.messages, context, time_left(), plan.variables)
        except MlccError as error:
            raise with_param("messages", error) from None
        head = self._head("chatcmpl", parsed)
        prediction = await plan.prediction(self.prompts, context, time_left)
        reasoning = plan.reasoning(prompt, structure is not None)
        spec = GenerationSpec(structure, reasoning, self.text.shown, prediction)
        job = self._submit(request, head, [prompt], parsed, None, time_left(), spec)
        job.prompt_field = "messages"
        new_parser = plan.parsers(prompt)
        chunks = ChatChunks(head, parsed.delivery.include_usage, new_parser)
        whole = partial(chat_completion, head, new_parser=new_parser)
        return Generation(head, job, chunks, whole, ignored, len(prompt))

    async def count(self, body: Any) -> int:
        """The tokens of the prompt that a body as /v1/chat/completions takes it makes, which may
        be more than the context has room for."""
        started = time.monotonic()
        parsed = parse_chat(body)
        self.check_model(parsed.delivery.model)
        time_left = self.clock(started, parsed.delivery.timeout)
        plan = ChatPlan(parsed, self.text)
        return len(
            await self.prompts.chat(plan.messages, MOST_COUNTED, time_left(), plan.variables)
        )

    async def complete(self, request: ApiRequest, body: Any) -> Generation:
        """A body as /v1/completions takes it, asked of the engine."""
        started = time.monotonic()
        parsed, ignored = parse_completion(body), self.unknown(COMPLETION, body)
        time_left = self.clock(started, parsed.delivery.timeout)
        self.check_model(parsed.delivery.model)
        self.check_writes()
        await self._check_structure(parsed, time_left())
        if parsed.suffix:
            parsed = self._infilling(parsed)
        prompts = [await self.encode(prompt, time_left()) for prompt in parsed.prompts]
        head = self._head("cmpl", parsed)
        if parsed.echo:
            head = replace(head, echoes=[self._echo(prompt) for prompt in parsed.prompts])
        limit, spec = COMPLETION_MAX_TOKENS, GenerationSpec(parsed.structure)
        job = self._submit(request, head, prompts, parsed, limit, time_left(), spec)
        chunks = CompletionChunks(head, parsed.delivery.include_usage)
        return Generation(
            head, job, chunks, lambda made: completion(head, made, parsed.delivery.n), ignored
        )

    def unknown(self, table: Object, body: Any) -> dict[str, str]:
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

    def check_model(self, name: str | None) -> None:
        """Raises NotFoundError for another model than the one here."""
        names = self.text.name, *self.aliases
        if name is not None and name not in names and name not in self.engine.adapters:
            loaded = ", ".join(f"'{adapter}'" for adapter in sorted(self.engine.adapters)[:8])
            beside = f" with the adapters {loaded}" if loaded else ""
            raise NotFoundError(
                f"the model here is '{self.text.name}'{beside}, not '{name[:80]}'; ask for it, or "
                "leave 'model' out",
                param="model",
                code="model_not_found",
            )

    def check_writes(self) -> None:
        """Raises UnsupportedError for an encoder, of which an answer is wanted."""
        if self.text.encoder is not None:
            raise writes_nothing(self.text.name)

    async def encode(self, prompt: str | list[int], seconds: float | None) -> array[int]:
        """The ids of a raw prompt."""
        if isinstance(prompt, list):
            return array("i", prompt)
        return await self.prompts.text(prompt, self.engine.capacity.context, seconds)

    def infill(self, before: str, after: str, field: str) -> tuple[str, list[int]]:
        """The prompt whose answer fills the gap between two texts, and tokens that end it. Raises
        UnsupportedError that names the field, of a model that was not trained for it."""
        if (family := self.text.infill) is None:
            raise no_infill(self.text.name, field)
        ends = map(self.text.token, family.ends)
        return family.text(before, after), [token for token in ends if token is not None]

    def _infilling(self, parsed: CompletionRequest) -> CompletionRequest:
        made = [self.infill(str(text), parsed.suffix, "suffix") for text in parsed.prompts]
        stop = (*parsed.sampling.get("stop_token_ids", ()), *made[0][1])
        sampling = {**parsed.sampling, "stop_token_ids": tuple(dict.fromkeys(stop))}
        return replace(parsed, prompts=tuple(text for text, _ in made), sampling=sampling)

    async def _check_structure(
        self, parsed: ChatRequest | CompletionRequest, seconds: float | None
    ) -> None:
        """Raises MlccError if the answer cannot be held to what it must be."""
        if parsed.structure is not None:
            check_built(self.text, parsed.structure)
            await self.prompts.structure(parsed.structure, seconds)

    def clock(self, started: float, wanted: float | None) -> Callable[[], float | None]:
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
        spec: GenerationSpec,
    ) -> Job:
        encode = self.text.tokenizer.encode
        parse_sampling = with_word_ids(parsed.sampling, partial(encode, add_special_tokens=False))
        params = to_params(parse_sampling, self.text.sampling, max_tokens=limit)
        delivery = parsed.delivery
        adapter = delivery.model if delivery.model in self.engine.adapters else ""
        requests = [
            Request(
                f"{head.id}-{index}-{number}",
                prompt,
                of_answer(params, number),
                tenant=request.tenant,
                cache_salt=delivery.cache_salt,
                structure=spec.structure,
                shown=spec.shown,
                reasoning=spec.reasoning,
                prediction=spec.prediction,
                sampling_group=f"{head.id}-{index}" if delivery.made > 1 else "",
                priority=delivery.priority,
                adapter=adapter or "",
            )
            for index, prompt in enumerate(prompts)
            for number in range(delivery.made)
        ]
        return self.engine.submit(requests, seconds)

    def _head(self, prefix: str, parsed: ChatRequest | CompletionRequest) -> Head:
        logprobs = parsed.sampling.get("logprobs") is not None
        name, made = f"{prefix}-{os.urandom(16).hex()}", parsed.delivery.made
        model = parsed.delivery.model or self.text.name  # as it was called: one of its names
        head = Head(name, int(time.time()), model, logprobs, made)
        return replace(head, fingerprint=self.text.info.fingerprint)

    def _echo(self, prompt: str | list[int]) -> str:
        return prompt if isinstance(prompt, str) else self.text.tokenizer.decode(prompt)
