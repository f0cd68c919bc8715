"""Anthropic's routes: /v1/messages and its token count. Shapes are in `mlcc.api.anthropic`."""

from __future__ import annotations

from functools import partial

from mlcc.api.anthropic.answer import MessageEvents
from mlcc.api.anthropic.fields import COUNT_TOKENS, MESSAGES, TEXT_COUNT_TOKENS, TEXT_MESSAGES
from mlcc.api.anthropic.request import parse_count, parse_messages
from mlcc.api.schema.unknown_fields import merged_headers
from mlcc.service.generate import count_prompt_tokens, generate_chat
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import ANTHROPIC_COUNT, ANTHROPIC_MESSAGES
from mlcc.service.http.sse import event_lines, run_through, sends_event_lines
from mlcc.service.http.types import ApiRequest, ApiResponse, events_response, json_response
from mlcc.service.served_model import ServedModel


async def create(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/messages."""
    body = await served.body(request)
    table = MESSAGES if served.sees else TEXT_MESSAGES
    parse = partial(parse_messages, reads=served.reads)
    parsed, ignored = await served.checked(request, body, parse, table)
    generation = await generate_chat(served, request, parsed.chat, parsed.names)
    ignored = merged_headers(ignored, generation.ignored)
    made_id = generation.head.id.rpartition("-")[2]
    events = MessageEvents(parsed, made_id, generation.head.model, generation.prompt_tokens)
    if not parsed.stream:
        await run_through(generation, events)
        return await generation.written(lambda: events.message, ignored)
    await generation.accepted()
    job = generation.job
    made, attach = event_lines(generation, events), sends_event_lines(generation, events)
    return events_response(made, job.close, lambda: job.failure, ignored, attach)


async def count(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/messages/count_tokens."""
    body = await served.body(request)
    table = COUNT_TOKENS if served.sees else TEXT_COUNT_TOKENS
    parse = partial(parse_count, reads=served.reads)
    chat, ignored = await served.checked(request, body, parse, table)
    tokens = await count_prompt_tokens(served, request, chat)
    return json_response({"input_tokens": tokens}, headers=ignored)


HANDLERS: Handlers = {ANTHROPIC_MESSAGES: create, ANTHROPIC_COUNT: count}
