"""Text generation for one request: the body is parsed, checked and encoded, and the engine starts.

`ChatPlan` adapts a chat request to the model: template variables and messages, the constraint on
answers, the reasoning budget, and the parser of the output.

The result is a `Generation`, whole or in chunks in OpenAI's shapes; other protocols translate those
(`mlcc.service.protocols`).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from mlcc.api.chat_template.history import results_in_order
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
    NewParser,
    chat_completion,
    completion,
)
from mlcc.api.openai.shapes import ChatCompletion, Completion
from mlcc.api.parsers.tools.grammar import calls_grammar
from mlcc.api.parsers.tools.prompted import with_prompted_tools
from mlcc.api.schema.chat_fields import CHAT, COMPLETION
from mlcc.api.schema.field_names import AS_SENT, FieldNames
from mlcc.api.schema.tool_fields import ToolUse
from mlcc.engine.events import Event, Finished, TextDelta
from mlcc.engine.request import AudioClip, Request
from mlcc.engine.sampling.grammar import Structure
from mlcc.engine.sampling.reasoning_grammar import Reasoning
from mlcc.engine.text.stop_checker import ParserSpec
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.model.model import ModelText
from mlcc.model.reasoning import reasoning_rule
from mlcc.multimodal.prompt import Prompt
from mlcc.service.engine_client import Job, with_param
from mlcc.service.http.json_body import Offload
from mlcc.service.http.json_pieces import response_by_pieces
from mlcc.service.http.types import ApiRequest, ApiResponse, Sink, json_response
from mlcc.service.schemas import ToolSchemas, enforceable
from mlcc.service.served_model import Prompts, ServedModel, check_built
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class GenerationSpec:
    """The engine's options of a generation besides sampling."""

    structure: Structure | None = None
    reasoning: Reasoning | None = None
    shown: tuple[tuple[int, str], ...] = ()
    prediction: Sequence[int] = ()
    """Predicted tokens of the answer, given by the client."""
    parser: ParserSpec | None = None
    """The parser of the content in which stop strings count."""


class ChatPlan:
    """The plan of one chat request."""

    def __init__(self, parsed: ChatRequest, text: ModelText) -> None:
        self._parsed, self._text, self._output_format = parsed, text, text.output_format
        self.variables: dict[str, Any] = dict(parsed.reasoning.variables)
        """Template variables besides the messages."""
        self.left_out: list[str] = []
        """Keywords of the tools' schemas that are not enforced, by their paths."""
        if not parsed.generation_prompt:
            self.variables["add_generation_prompt"] = False
        self.messages: Sequence[Mapping[str, Any]] = parsed.messages
        """Messages for the template; one without tools gets them as text."""
        if not self._output_format.native:
            ordered = results_in_order(parsed.messages)
            self.messages = with_prompted_tools(ordered, parsed.use.shown)
        elif parsed.use.shown:
            self.variables["tools"] = [*parsed.use.shown]

    async def prompt(self, prompts: Prompts, context: int, seconds: float | None) -> Prompt:
        """The prompt, of at most `context` tokens. Raises MlccError."""
        messages, variables, media = self.messages, self.variables, self._parsed.media
        if media is None:
            return Prompt(await prompts.chat(messages, context, seconds, variables))
        return await prompts.chat_with_media(messages, media, context, seconds, variables)

    async def structure(
        self, prompts: Prompts, time_left: Callable[[], float | None], offload: Offload
    ) -> Structure | None:
        """The constraint on answers. Raises MlccError if a required one cannot be enforced."""
        use = self._parsed.use
        if not use.tools:
            return self._parsed.structure
        answer = await offload.check(self._answer)
        needs = use.must_hold or answer is not None
        if not needs and (self._text.grammars is None or self._text.reasoning_parser == "none"):
            return None  # calls are parsed, not constrained
        check_built(self._text, Structure("grammar", "", use.field))
        refused: MlccError | None = None
        unique = self._output_format.format.json_arguments
        schemas = ToolSchemas(use.tools, prompts, time_left, unique, offload)
        async for tools, left_out in schemas.candidates():
            work = partial(self._calls, replace(use, tools=tools), answer)
            structure = await offload.check(work)
            try:
                await prompts.structure(structure, time_left())
                self.left_out += left_out
                return structure
            except (InvalidRequestError, UnsupportedError) as error:
                refused = refused or error
        if needs and refused is not None:
            raise refused
        return None

    async def prediction(
        self, prompts: Prompts, context: int, time_left: Callable[[], float | None]
    ) -> Sequence[int]:
        """The tokens of the predicted answer. Raises MlccError that names the field."""
        if not (text := self._parsed.prediction):
            return ()
        try:
            return await prompts.text(text, context, time_left(), add_special=False)
        except MlccError as error:
            raise with_param("prediction", error) from None

    def reasoning(self, prompt: Sequence[int], held: bool) -> Reasoning | None:
        """The reasoning rule, if it matters: for a budget, or since the answer after it is
        constrained. Raises UnsupportedError for a budget of a model with channels."""
        budget = self._parsed.reasoning.budget
        if budget is None and not held:
            return None
        if budget and self._output_format.channels:
            raise UnsupportedError(
                "'thinking_budget' is not built for models that answer in channels; send "
                "'reasoning_effort' instead",
                param="thinking_budget",
                code="unsupported_parameter",
            )
        wanted = self.variables.get("enable_thinking") is not False
        return reasoning_rule(self._text, prompt, budget, wanted)

    def opened(self, prompt: Sequence[int]) -> bool:
        """Whether this prompt begins the reasoning."""
        has_tags = self._output_format.tags is not None
        return has_tags and self._output_format.opened(self._text.ending(prompt))

    def parsers(self, opened: bool) -> NewParser:
        """A factory of parsers for answers."""
        return partial(self._output_format.parser, self._parsed.use, opened, _new_id)

    def parser_spec(self, opened: bool) -> ParserSpec | None:
        """The parser of answers in which stop strings count; None = in all of the text."""
        if not self._parsed.sampling.get("stop"):
            return None
        return self._output_format.parser_spec(self._parsed.use, opened)

    def _answer(self) -> Mapping[str, Any] | None:
        """JSON Schema of an answer that is not a tool call."""
        structure = self._parsed.structure
        if structure is None:
            return None
        if structure.kind != "json_schema":
            raise InvalidRequestError(
                f"'{structure.field}' and 'tools' cannot both be held to; send a JSON Schema as "
                "'response_format', or leave one out",
                param=structure.field,
                code="invalid_value",
            )
        try:
            schema = json.loads(structure.text)
        except (ValueError, RecursionError):
            schema = None
        return schema if isinstance(schema, dict) else {"type": "object"}

    def _calls(self, use: ToolUse, answer: Mapping[str, Any] | None) -> Structure:
        """The grammar of calls."""
        format = self._output_format.format
        grammar = calls_grammar(format, use, self._text.marks, answer)
        start: str | None = format.trigger or None  # free text without one may say anything
        if answer is not None or use.mode == "required":
            start = ""
        json_start = start if format.json_arguments else None
        return Structure("grammar", grammar, use.field, json_start=json_start)


def _new_id() -> str:
    return f"call_{os.urandom(12).hex()}"


MOST_COUNTED = 1 << 22
"""Longest prompt in tokens that is only counted: more than a request's body can hold."""
MANY_VALUES = 1 << 10
"""Most tokens and log-probabilities of an answer that the event loop translates and writes itself:
about 5 ms. More take a thread."""


@fast_dataclass(frozen=True)
class Generation:
    """A request that the engine works on. Use either `answer` or `stream`, once. Cancelling
    `answer`, or closing the job of an unfinished stream, cancels the generation."""

    head: Head
    job: Job
    chunks: Chunks
    whole: Callable[[Sequence[Answer]], ChatCompletion | Completion]
    ignored: Mapping[str, str] = field(default_factory=dict)
    """The response header that names unknown fields of the request, and schema keywords that are
    not enforced."""
    prompt_tokens: int = 0
    """Tokens of all prompts together."""
    per_token: int = 1
    """Values that the answer reports for each token: the token, and the likeliest in its place."""
    reports_prompt: bool = False
    """Whether the answer reports the prompt's tokens too."""

    @property
    def matched(self) -> str | None:
        """The stop string that ended the first answer, if one did."""
        return finished.matched if (finished := self.job.finished.get(0)) else None

    async def answer(self) -> ApiResponse:
        """All answers as one ChatCompletion or Completion. Raises MlccError."""
        job = self.job
        try:
            deltas = await job.deltas()
        finally:
            job.close()
        return await self.written(lambda: self.whole(job.joined(deltas)), self.ignored)

    async def written(self, make: Callable[[], Any], headers: Mapping[str, str]) -> ApiResponse:
        """The response with the value that `make` returns once all answers are complete. What is
        long is made and written in a thread."""
        tokens = sum(each.completion_tokens for each in self.job.usage())
        if self.reports_prompt:
            tokens += sum(each.prompt_tokens for each in self.job.usage())
        if tokens * self.per_token <= MANY_VALUES:
            return json_response(make(), headers=headers)
        return await response_by_pieces(make, headers)

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
            else:
                for chunk in await self._chunks(index, event):
                    yield chunk
        if usage := chunks.usage(job.usage()):
            yield usage

    def send_to(self, sink: Sink, line: Callable[[Chunk], str]) -> None:
        """Write plain text to a sink when it arrives, while `stream` has nothing to do. line:
        writes a chunk as the reader of `stream` does."""

        def take(event: Event) -> bool:
            if not isinstance(event, TextDelta) or event.token_logprobs or event.prompt_logprobs:
                return False
            if not sink.ready():
                return False
            made = "".join(map(line, self.chunks.text(self.job.index_of(event), event)))
            if made:
                sink.write(made)
            return True

        self.job.direct = take

    async def _chunks(self, index: int, delta: TextDelta) -> Iterable[Chunk]:
        if len(delta.prompt_logprobs) * self.per_token <= MANY_VALUES:
            return self.chunks.text(index, delta)
        return await asyncio.to_thread(lambda: [*self.chunks.text(index, delta)])


async def generate_chat(
    served: ServedModel, request: ApiRequest, body: Any, names: FieldNames = AS_SENT
) -> Generation:
    """Starts the answers to a body of /v1/chat/completions. names: of the fields that were sent, if
    they were translated. Raises MlccError."""
    return await _with_names(names, _generate_chat(served, request, body, names))


async def _with_names(names: FieldNames, starting: Awaitable[Generation]) -> Generation:
    """The generation; its errors, also later ones, name the fields that were sent."""
    try:
        generation = await starting
    except MlccError as error:
        raise names.renamed(error) from None
    generation.job.names = names
    return generation


async def _generate_chat(
    served: ServedModel, request: ApiRequest, body: Any, names: FieldNames
) -> Generation:
    started = time.monotonic()
    parse = partial(parse_chat, sees=served.sees, hears=served.hears)
    parsed, ignored = await served.checked(request, body, parse, CHAT)
    time_left = served.clock(request, started, parsed.delivery.timeout)
    served.check_model(parsed.delivery.model)
    served.check_generates()
    context = served.engine.capacity.context
    structure, left_out = await _enforceable(served, request, parsed.structure, time_left)
    parsed = replace(parsed, structure=structure)
    plan = await request.offload.check(partial(ChatPlan, parsed, served.text))
    structure = await plan.structure(served.prompts, time_left, request.offload)
    try:
        prompt = await plan.prompt(served.prompts, context, time_left())
    except MlccError as error:
        raise with_param("messages", error) from None
    ignored = served.named(ignored, [names.of(path) for path in (*left_out, *plan.left_out)])
    head = _head(served, "chatcmpl", parsed, [prompt])
    prediction = await plan.prediction(served.prompts, context, time_left)
    reasoning = plan.reasoning(prompt.ids, structure is not None)
    opened = plan.opened(prompt.ids)
    parser = plan.parser_spec(opened)
    spec = GenerationSpec(structure, reasoning, served.text.shown, prediction, parser)
    job = _submit(served, request, head, [prompt], parsed, None, time_left(), spec)
    job.prompt_field = "messages"
    new_parser = plan.parsers(opened)
    chunks = ChatChunks(head, parsed.delivery.include_usage, new_parser)
    whole = partial(chat_completion, head, new_parser=new_parser)
    per_token = _values_per_token(parsed)
    return Generation(head, job, chunks, whole, ignored, len(prompt.ids), per_token)


async def count_prompt_tokens(served: ServedModel, request: ApiRequest, body: Any) -> int:
    """The number of prompt tokens of a body of /v1/chat/completions; it may exceed the context."""
    started = time.monotonic()
    parsed = await request.offload.check(partial(parse_chat, body, served.sees, served.hears))
    served.check_model(parsed.delivery.model)
    time_left = served.clock(request, started, parsed.delivery.timeout)
    plan = await request.offload.check(partial(ChatPlan, parsed, served.text))
    return len((await plan.prompt(served.prompts, MOST_COUNTED, time_left())).ids)


async def generate_completion(
    served: ServedModel, request: ApiRequest, body: Any, names: FieldNames = AS_SENT
) -> Generation:
    """Starts the answers to a body of /v1/completions. names: as in `generate_chat`. Raises
    MlccError."""
    return await _with_names(names, _generate_completion(served, request, body, names))


async def _enforceable(
    served: ServedModel,
    request: ApiRequest,
    structure: Structure | None,
    time_left: Callable[[], float | None],
) -> tuple[Structure | None, list[str]]:
    """As `enforceable`, of a request that may have no constraint."""
    if structure is None:
        return None, []
    return await enforceable(served.text, served.prompts, structure, time_left, request.offload)


async def _generate_completion(
    served: ServedModel, request: ApiRequest, body: Any, names: FieldNames
) -> Generation:
    started = time.monotonic()
    parsed, ignored = await served.checked(request, body, parse_completion, COMPLETION)
    time_left = served.clock(request, started, parsed.delivery.timeout)
    served.check_model(parsed.delivery.model)
    served.check_generates()
    structure, left_out = await _enforceable(served, request, parsed.structure, time_left)
    parsed = replace(parsed, structure=structure)
    ignored = served.named(ignored, [names.of(path) for path in left_out])
    if parsed.suffix:
        parsed = _with_infill(served, parsed)
    prompts = [await served.encode(prompt, time_left()) for prompt in parsed.prompts]
    head = _head(served, "cmpl", parsed, prompts)
    if parsed.echo:
        head = replace(head, echoes=[_echo(served, prompt) for prompt in parsed.prompts])
    limit, spec = COMPLETION_MAX_TOKENS, GenerationSpec(parsed.structure)
    job = _submit(served, request, head, prompts, parsed, limit, time_left(), spec)
    chunks = CompletionChunks(head, parsed.delivery.include_usage)
    return Generation(
        head,
        job,
        chunks,
        lambda made: completion(head, made, parsed.delivery.n),
        ignored,
        per_token=_values_per_token(parsed),
        reports_prompt=bool(parsed.sampling.get("prompt_logprobs")),
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


def _submit(
    served: ServedModel,
    request: ApiRequest,
    head: Head,
    prompts: Sequence[Prompt],
    parsed: ChatRequest | CompletionRequest,
    limit: int | None,
    seconds: float | None,
    spec: GenerationSpec,
) -> Job:
    encode = served.text.tokenizer.encode
    parse_sampling = with_word_ids(parsed.sampling, partial(encode, add_special_tokens=False))
    params = to_params(parse_sampling, served.text.sampling, max_tokens=limit)
    delivery = parsed.delivery
    named = delivery.model  # the model, or one of its adapters
    adapter = named if named and named in served.engine.adapters else ""
    requests = [
        Request(
            f"{head.id}-{index}-{number}",
            prompt.ids,
            of_answer(params, number),
            tenant=request.tenant,
            cache_salt=delivery.cache_salt,
            structure=spec.structure,
            shown=spec.shown,
            reasoning=spec.reasoning,
            prediction=spec.prediction,
            parser=spec.parser,
            sampling_group=f"{head.id}-{index}" if delivery.made > 1 else "",
            priority=delivery.priority,
            background=request.background,
            adapter=adapter or "",
            media=prompt.media,
        )
        for index, prompt in enumerate(prompts)
        for number in range(delivery.made)
    ]
    return served.engine.submit(requests, seconds)


def _head(
    served: ServedModel,
    prefix: str,
    parsed: ChatRequest | CompletionRequest,
    prompts: Sequence[Prompt],
) -> Head:
    logprobs = parsed.sampling.get("logprobs") is not None
    name, made = f"{prefix}-{os.urandom(16).hex()}", parsed.delivery.made
    model = parsed.delivery.model or served.text.name  # as it was called: one of its names
    head = Head(name, int(time.time()), model, logprobs, made)
    tiles = [tile for prompt in prompts for tile in prompt.media]
    heard = sum(tile.rows for tile in tiles if isinstance(tile, AudioClip))
    return replace(
        head,
        fingerprint=served.text.info.fingerprint,
        image_tokens=sum(tile.rows for tile in tiles) - heard,
        audio_tokens=heard,
    )


def _values_per_token(parsed: ChatRequest | CompletionRequest) -> int:
    return 1 + (parsed.sampling.get("logprobs") or 0)


def _echo(served: ServedModel, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else served.text.tokenizer.decode(prompt)
