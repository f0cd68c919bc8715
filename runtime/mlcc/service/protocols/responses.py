"""OpenAI's Responses API: answers generated, stored, fetched, cancelled and deleted. Shapes are in
`mlcc.api.openai_responses`.
"""

from __future__ import annotations

import re
import time
from functools import partial
from urllib.parse import parse_qs

from mlcc.api.openai_responses.answer import ResponseEvents
from mlcc.api.openai_responses.fields import table_of
from mlcc.api.openai_responses.request import parse_responses
from mlcc.api.schema.unknown_fields import merged_headers
from mlcc.errors import InvalidRequestError, UnsupportedError
from mlcc.service.generate import count_prompt_tokens, generate_chat
from mlcc.service.http.router import Handlers, ServiceHandlers
from mlcc.service.http.routes import (
    RESPONSE,
    RESPONSE_CANCEL,
    RESPONSE_CREATE,
    RESPONSE_DELETE,
    RESPONSE_INPUT,
    RESPONSE_TOKENS,
)
from mlcc.service.http.sse import event_lines, run_through, sends_event_lines
from mlcc.service.http.types import ApiRequest, ApiResponse, events_response, json_response
from mlcc.service.response_store.conversations import turn_of
from mlcc.service.served_model import Models, ServedModel

_LIMIT = re.compile(r"[0-9]{1,9}")
MOST_LISTED = 100
LISTED = 20
"""Default number of items of a page, OpenAI's."""


async def create(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/responses."""
    body = await served.body(request)
    parse, table = partial(parse_responses, reads=served.reads), table_of(False, served.reads)
    parsed, ignored = await served.checked(request, body, parse, table)
    conversations, tenant = served.conversations, request.tenant
    async with conversations.loading() as loading:
        history = await conversations.before(tenant, parsed.previous, loading)
        items = await request.offload.check(parsed.items)
        given = await conversations.resolved(tenant, items, loading)
        chat = await request.offload.check(partial(parsed.chat, [*history, *given]))
        del history
        generation = await generate_chat(served, request, chat, parsed.chat_names)
        del chat
    ignored = merged_headers(ignored, generation.ignored)
    made_id, head = generation.head.id.rpartition("-")[2], generation.head
    defaults = served.text.sampling
    events = ResponseEvents(parsed, made_id, head.model, head.created, defaults, _now)
    given = [{"id": f"item_{made_id}_{number}", **item} for number, item in enumerate(given)]

    async def keep() -> None:
        conversations.end(tenant, events)
        if parsed.store:
            work = partial(turn_of, events.answer, given, parsed.previous)
            turn = await request.offload.check(work)
            await conversations.keep(tenant, events.answer["id"], turn)

    if not parsed.stream:
        await run_through(generation, events)
        await keep()
        return await generation.written(lambda: events.answer, ignored)
    await generation.accepted()
    job = generation.job
    conversations.begin(tenant, events, job)

    def close() -> None:
        conversations.end(tenant, events)
        job.close()

    made, attach = event_lines(generation, events, keep), sends_event_lines(generation, events)
    return events_response(made, close, lambda: job.failure, ignored, attach)


async def count(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/responses/input_tokens."""
    body = await served.body(request)
    parse = partial(parse_responses, counted=True, reads=served.reads)
    parsed, ignored = await served.checked(request, body, parse, table_of(True, served.reads))
    conversations = served.conversations
    async with conversations.loading() as loading:
        history = await conversations.before(request.tenant, parsed.previous, loading)
        items = await request.offload.check(parsed.items)
        given = await conversations.resolved(request.tenant, items, loading)
        chat = await request.offload.check(partial(parsed.chat, [*history, *given]))
        tokens = await count_prompt_tokens(served, request, chat)
    return json_response(
        {"object": "response.input_tokens", "input_tokens": tokens}, headers=ignored
    )


async def get(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v1/responses/{name}: a stored answer, or one in progress."""
    name = request.parameters["name"]
    if parse_qs(request.query).get("stream", ["false"])[0].lower() == "true":
        raise UnsupportedError(
            "streaming an answer again is not built; leave 'stream' out",
            param="stream",
            code="unsupported_parameter",
        )
    if (current := models.conversations.current(request.tenant, name)) is not None:
        return json_response(current)
    return json_response((await models.conversations.get(request.tenant, name)).response)


async def delete(models: Models, request: ApiRequest) -> ApiResponse:
    """DELETE /v1/responses/{name}."""
    name = request.parameters["name"]
    await models.conversations.delete(request.tenant, name)
    return json_response({"id": name, "object": "response", "deleted": True})


async def cancel(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /v1/responses/{name}/cancel."""
    name = request.parameters["name"]
    return json_response(await models.conversations.cancel(request.tenant, name))


async def input_items(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /v1/responses/{name}/input_items: the conversation before the answer, newest first unless
    `order` is asc."""
    conversations, tenant = models.conversations, request.tenant
    entry = await conversations.get(tenant, request.parameters["name"])
    query = {name: values[-1] for name, values in parse_qs(request.query).items()}
    order = query.get("order", "desc")
    limit = query.get("limit", str(LISTED))
    if order not in ("asc", "desc"):
        raise _wrong("order", "'asc' or 'desc'")
    if not _LIMIT.fullmatch(limit) or not 1 <= int(limit) <= MOST_LISTED:
        raise _wrong("limit", f"a whole number from 1 to {MOST_LISTED}")
    items = entry.input
    if entry.previous is not None:
        async with conversations.loading() as loading:
            before = await conversations.history(tenant, entry.previous, loading, whole=False)
        items = [*(before or ()), *items]
    if order == "desc":
        items.reverse()
    if after := query.get("after"):
        ids = [item["id"] for item in items]
        if after not in ids:
            raise _wrong("after", "the id of an item of this list")
        items = items[ids.index(after) + 1 :]
    page = items[: int(limit)]
    return json_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(page) < len(items),
        }
    )


def _wrong(name: str, wants: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{name}' must be {wants}", param=name, code="invalid_value")


def _now() -> int:
    return int(time.time())


HANDLERS: Handlers = {
    RESPONSE_CREATE: create,
    RESPONSE_TOKENS: count,
}
SERVICE_HANDLERS: ServiceHandlers = {
    RESPONSE: get,
    RESPONSE_DELETE: delete,
    RESPONSE_CANCEL: cancel,
    RESPONSE_INPUT: input_items,
}
