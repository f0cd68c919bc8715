"""Text generation for one request: the body is parsed, checked and encoded, and the engine starts.

The result is a `Generation`, whole or in chunks in OpenAI's shapes; other protocols translate those
(`mlcc.service.protocols`).
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from mlcc.api.openai.infill import no_infill
from mlcc.api.openai.requests import (
    COMPLETION_MAX_TOKENS,
    ChatRequest,
    CompletionRequest,
    of_answer,
    parse_chat,
    parse_completion,
    to_params,
    with_word_ids,
)
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
from mlcc.api.openai.shapes import ChatCompletion, Completion
from mlcc.api.schema.chat_fields import CHAT, COMPLETION
from mlcc.engine.events import Finished
from mlcc.engine.request import Request
from mlcc.errors import MlccError
from mlcc.service.chat import ChatPlan, GenerationSpec
from mlcc.service.engine_client import Job, with_param
from mlcc.service.http.types import ApiRequest
from mlcc.service.prompts import check_built
from mlcc.service.served_model import ServedModel
from mlcc.util.fast_dataclass import fast_dataclass

MOST_COUNTED = 1 << 22
"""Longest prompt in tokens that is only counted: more than a request's body can hold."""


@fast_dataclass(frozen=True)
class Generation:
    """A request that the engine works on. Use either `answer` or `stream`, once. Cancelling
    `answer`, or closing the job of an unfinished stream, cancels the generation."""

    head: Head
    job: Job
    chunks: Chunks
    whole: Callable[[Sequence[Answer]], ChatCompletion | Completion]
    ignored: Mapping[str, str] = field(default_factory=dict)
    """The response header that names unknown fields of the request."""
    prompt_tokens: int = 0
    """Tokens of all prompts together."""

    @property
    def matched(self) -> str | None:
        """The stop string that ended the first answer, if one did."""
        return finished.matched if (finished := self.job.finished.get(0)) else None

    async def answer(self) -> Any:
        """All answers as one ChatCompletion or Completion. Raises MlccError."""
        try:
            return self.whole(await self.job.answers())
        finally:
            self.job.close()

    async def accepted(self) -> None:
        """Wait for admission: the engine refuses before the first chunk. Raises MlccError."""
        try:
            await self.job.accepted()
        except BaseException:
            self.job.close()
            raise

    async def stream(self) -> AsyncIterator[Chunk]:
        """The chunks as they are generated. Raises MlccError if the answers end early."""
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


async def generate_chat(served: ServedModel, request: ApiRequest, body: Any) -> Generation:
    """Starts the answers to a body of /v1/chat/completions. Raises MlccError."""
    started = time.monotonic()
    parsed, ignored = parse_chat(body), served.unknown(CHAT, body)
    time_left = served.clock(started, parsed.delivery.timeout)
    served.check_model(parsed.delivery.model)
    served.check_generates()
    context = served.engine.capacity.context
    if not parsed.use.tools:
        await _check_structure(served, parsed, time_left())
    plan = ChatPlan(parsed, served.text)
    structure = await plan.structure(served.prompts, time_left)
    try:
        prompt = await served.prompts.chat(plan.messages, context, time_left(), plan.variables)
    except MlccError as error:
        raise with_param("messages", error) from None
    head = _head(served, "chatcmpl", parsed)
    prediction = await plan.prediction(served.prompts, context, time_left)
    reasoning = plan.reasoning(prompt, structure is not None)
    spec = GenerationSpec(structure, reasoning, served.text.shown, prediction)
    job = _submit(served, request, head, [prompt], parsed, None, time_left(), spec)
    job.prompt_field = "messages"
    new_parser = plan.parsers(prompt)
    chunks = ChatChunks(head, parsed.delivery.include_usage, new_parser)
    whole = partial(chat_completion, head, new_parser=new_parser)
    return Generation(head, job, chunks, whole, ignored, len(prompt))


async def count_prompt_tokens(served: ServedModel, body: Any) -> int:
    """The number of prompt tokens of a body of /v1/chat/completions; it may exceed the context."""
    started = time.monotonic()
    parsed = parse_chat(body)
    served.check_model(parsed.delivery.model)
    time_left = served.clock(started, parsed.delivery.timeout)
    plan = ChatPlan(parsed, served.text)
    return len(await served.prompts.chat(plan.messages, MOST_COUNTED, time_left(), plan.variables))


async def generate_completion(served: ServedModel, request: ApiRequest, body: Any) -> Generation:
    """Starts the answers to a body of /v1/completions. Raises MlccError."""
    started = time.monotonic()
    parsed, ignored = parse_completion(body), served.unknown(COMPLETION, body)
    time_left = served.clock(started, parsed.delivery.timeout)
    served.check_model(parsed.delivery.model)
    served.check_generates()
    await _check_structure(served, parsed, time_left())
    if parsed.suffix:
        parsed = _with_infill(served, parsed)
    prompts = [await served.encode(prompt, time_left()) for prompt in parsed.prompts]
    head = _head(served, "cmpl", parsed)
    if parsed.echo:
        head = replace(head, echoes=[_echo(served, prompt) for prompt in parsed.prompts])
    limit, spec = COMPLETION_MAX_TOKENS, GenerationSpec(parsed.structure)
    job = _submit(served, request, head, prompts, parsed, limit, time_left(), spec)
    chunks = CompletionChunks(head, parsed.delivery.include_usage)
    return Generation(
        head, job, chunks, lambda made: completion(head, made, parsed.delivery.n), ignored
    )


def infill_prompt(
    served: ServedModel, before: str, after: str, field: str
) -> tuple[str, list[int]]:
    """The prompt that fills in the middle between two texts, and the tokens that end the answer.
    Raises UnsupportedError, which names `field`, if the model was not trained for it."""
    if (family := served.text.infill) is None:
        raise no_infill(served.text.name, field)
    ends = map(served.text.token, family.ends)
    return family.text(before, after), [token for token in ends if token is not None]


def _with_infill(served: ServedModel, parsed: CompletionRequest) -> CompletionRequest:
    made = [infill_prompt(served, str(text), parsed.suffix, "suffix") for text in parsed.prompts]
    stop = (*parsed.sampling.get("stop_token_ids", ()), *made[0][1])
    sampling = {**parsed.sampling, "stop_token_ids": tuple(dict.fromkeys(stop))}
    return replace(parsed, prompts=tuple(text for text, _ in made), sampling=sampling)


async def _check_structure(
    served: ServedModel, parsed: ChatRequest | CompletionRequest, seconds: float | None
) -> None:
    """Raise MlccError if the answers cannot be constrained to the requested structure."""
    if parsed.structure is not None:
        check_built(served.text, parsed.structure)
        await served.prompts.structure(parsed.structure, seconds)


def _submit(
    served: ServedModel,
    request: ApiRequest,
    head: Head,
    prompts: Sequence[array[int]],
    parsed: ChatRequest | CompletionRequest,
    limit: int | None,
    seconds: float | None,
    spec: GenerationSpec,
) -> Job:
    encode = served.text.tokenizer.encode
    parse_sampling = with_word_ids(parsed.sampling, partial(encode, add_special_tokens=False))
    params = to_params(parse_sampling, served.text.sampling, max_tokens=limit)
    delivery = parsed.delivery
    adapter = delivery.model if delivery.model in served.engine.adapters else ""
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
    return served.engine.submit(requests, seconds)


def _head(served: ServedModel, prefix: str, parsed: ChatRequest | CompletionRequest) -> Head:
    logprobs = parsed.sampling.get("logprobs") is not None
    name, made = f"{prefix}-{os.urandom(16).hex()}", parsed.delivery.made
    model = parsed.delivery.model or served.text.name  # as it was called: one of its names
    head = Head(name, int(time.time()), model, logprobs, made)
    return replace(head, fingerprint=served.text.info.fingerprint)


def _echo(served: ServedModel, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else served.text.tokenizer.decode(prompt)
