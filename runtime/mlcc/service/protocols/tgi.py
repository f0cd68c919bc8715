"""The routes of Hugging Face's text-generation-inference: /generate, /generate_stream, / and /info.
Shapes are in `mlcc.api.tgi`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from mlcc.api.schema.chat_fields import MAX_STOP, MOST_ANSWERS
from mlcc.api.schema.schema import Object
from mlcc.api.schema.unknown_fields import merged_headers
from mlcc.api.tgi.answer import Payload, Pieces, best_of, info, whole
from mlcc.api.tgi.errors import tgi_error
from mlcc.api.tgi.fields import COMPATIBLE, GENERATE
from mlcc.api.tgi.request import NAMES, check, completion_body, is_sampled
from mlcc.engine.events import Finished
from mlcc.errors import MlccError
from mlcc.service.generate import MOST_COUNTED, Generation, generate_completion
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import TGI_GENERATE, TGI_INFO, TGI_ROOT, TGI_STREAM
from mlcc.service.http.types import ApiRequest, ApiResponse, events_response, json_response, to_json
from mlcc.service.served_model import ServedModel
from mlcc.version import __version__


async def generate(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /generate."""
    return await _answer(served, request, GENERATE)


async def stream(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /generate_stream."""
    return await _answer(served, request, GENERATE, streamed=True)


async def either(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /: as the body's `stream` says; a whole answer is an array of one, as TGI's is."""
    return await _answer(served, request, COMPATIBLE, as_list=True)


async def about(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """GET /info."""
    served.check_generates()
    text, capacity = served.text, served.engine.capacity
    limits = {
        "max_concurrent_requests": served.engine.in_flight + served.engine.queue_space,
        "max_best_of": MOST_ANSWERS,
        "max_stop_sequences": MAX_STOP,
        "max_input_tokens": capacity.context - 1,
        "max_total_tokens": capacity.context,
        "max_batch_size": capacity.max_batch,
    }
    found = text.info
    name = text.name
    return json_response(
        info(name, found.digest, found.device, found.architecture, limits, __version__)
    )


async def _answer(
    served: ServedModel,
    request: ApiRequest,
    table: Object,
    streamed: bool = False,
    as_list: bool = False,
) -> ApiResponse:
    body = await served.body(request)
    fields, ignored = await served.checked(request, body, table.fields_of, table)
    served.check_model(fields.get("model"))
    given = fields.get("parameters", {})
    streamed = streamed or fields.get("stream", False)
    check(given, streamed)
    seed = given.get("seed", int.from_bytes(os.urandom(8), "little") >> 1)
    prompt = await _prompt(served, fields["inputs"], given)
    wanted = completion_body(given, prompt, seed)
    if "model" in fields:
        wanted.setdefault("model", fields["model"])
    generation = await generate_completion(served, request, wanted, NAMES)
    shown = seed if is_sampled(given) else None
    before = fields["inputs"] if given.get("return_full_text") else ""
    ignored = merged_headers(ignored, generation.ignored)
    if streamed:
        await generation.accepted()
        pieces, job = Pieces(before, given.get("top_n_tokens", 0) > 0), generation.job
        lines = _lines(generation, pieces, given.get("details", False), shown)
        return events_response(lines, job.close, lambda: job.failure, ignored)
    return await _whole(replace(generation, ignored=ignored), given, shown, before, as_list)


async def _prompt(served: ServedModel, text: str, given: Mapping[str, Any]) -> str | list[int]:
    """The prompt, or the last tokens of it."""
    if (most := given.get("truncate")) is None:
        return text
    served.check_generates()
    return [*(await served.prompts.text(text, MOST_COUNTED, None))[-most:]]


async def _whole(
    generation: Generation, given: Mapping[str, Any], seed: int | None, before: str, as_list: bool
) -> ApiResponse:
    job, top = generation.job, given.get("top_n_tokens", 0) > 0
    try:
        deltas = await job.deltas()
    finally:
        job.close()

    def make() -> Any:
        answers = [whole(each, job.finished[i], seed, before, top) for i, each in enumerate(deltas)]
        made = best_of(answers)
        if not given.get("details"):
            del made["details"]
        return [made] if as_list else made

    return await generation.written(make, generation.ignored)


async def _lines(
    generation: Generation, pieces: Pieces, details: bool, seed: int | None
) -> AsyncIterator[str]:
    """Each event as a server-sent event; a failure is the last one, without a [DONE]."""
    try:
        async for _, event in generation.job.events():
            made = (
                pieces.end(event, details, seed)
                if isinstance(event, Finished)
                else pieces.take(event)
            )
            for one in made:
                yield _line(one)
    except MlccError as error:
        generation.job.failure = error
        yield _line(tgi_error(error))


def _line(event: Payload) -> str:
    return f"data: {to_json(event)}\n\n"


HANDLERS: Handlers = {
    TGI_GENERATE: generate,
    TGI_STREAM: stream,
    TGI_ROOT: either,
    TGI_INFO: about,
}
