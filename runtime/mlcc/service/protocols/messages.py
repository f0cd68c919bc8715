"""Anthropic's addresses: /v1/messages and its count of tokens. What bodies and events look like is
`mlcc.api.anthropic`'s."""

from __future__ import annotations

from mlcc.api.anthropic.answer import MessageEvents
from mlcc.api.anthropic.fields import COUNT_TOKENS, MESSAGES
from mlcc.api.anthropic.request import parse_count, parse_messages
from mlcc.service.generate import Core
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import ANTHROPIC_COUNT, ANTHROPIC_MESSAGES
from mlcc.service.http.sse import event_lines, run_through
from mlcc.service.http.types import ApiRequest, ApiResponse, events_response, json_response


async def create(core: Core, request: ApiRequest) -> ApiResponse:
    """POST /v1/messages."""
    body = await core.body(request)
    parsed, ignored = parse_messages(body), core.unknown(MESSAGES, body)
    asked = await core.chat(request, parsed.chat)
    made_id = asked.head.id.rpartition("-")[2]
    events = MessageEvents(parsed, made_id, asked.head.model, asked.prompt_tokens)
    if not parsed.stream:
        await run_through(asked, events)
        return json_response(events.message, headers=ignored)
    await asked.accepted()
    job = asked.job
    return events_response(event_lines(asked, events), job.close, lambda: job.failure, ignored)


async def count(core: Core, request: ApiRequest) -> ApiResponse:
    """POST /v1/messages/count_tokens."""
    body = await core.body(request)
    chat, ignored = parse_count(body), core.unknown(COUNT_TOKENS, body)
    return json_response({"input_tokens": await core.count(chat)}, headers=ignored)


HANDLERS: Handlers = {ANTHROPIC_MESSAGES: create, ANTHROPIC_COUNT: count}
