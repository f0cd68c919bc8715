"""The routes of llama.cpp's server: /completion, /infill, /embedding, /props and /slots. Shapes are
in `mlcc.api.llamacpp`. There are no slots here: /slots describes the sequences of a batch.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from mlcc.api.errors import error_body
from mlcc.api.llamacpp.answer import Payload, Pieces, only
from mlcc.api.llamacpp.fields import COMPLETION, EMBEDDING, INFILL, TEXT_COMPLETION
from mlcc.api.llamacpp.request import (
    NOT_OURS,
    completion_body,
    field_names,
    infill_texts,
    one_prompt,
    with_images,
)
from mlcc.api.openai.infill import no_infill
from mlcc.api.schema.unknown_fields import merged_headers
from mlcc.errors import MlccError, UnsupportedError
from mlcc.multimodal.placeholders import TextWithMedia
from mlcc.service.embeddings import Encoding, encoder_of
from mlcc.service.generate import Generation, generate_completion, infill_prompt
from mlcc.service.http.json_pieces import response_by_pieces
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import (
    LLAMACPP_COMPLETION,
    LLAMACPP_COMPLETIONS,
    LLAMACPP_EMBEDDING,
    LLAMACPP_INFILL,
    LLAMACPP_PROPS,
    LLAMACPP_SLOTS,
)
from mlcc.service.http.types import ApiRequest, ApiResponse, events_response, json_response, to_json
from mlcc.service.served_model import ServedModel
from mlcc.version import __version__


async def complete(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /completion, /completions."""
    body = await served.body(request)
    table = COMPLETION if served.sees else TEXT_COMPLETION
    fields, ignored = await served.checked(request, body, table.fields_of, table)
    prompt = one_prompt(await request.offload.check(partial(with_images, fields)))
    return await _generation(served, request, ignored, fields, prompt)


async def infill(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /infill."""
    body = await served.body(request)
    fields, ignored = await served.checked(request, body, INFILL.fields_of, INFILL)
    if (family := served.text.infill) is None:
        raise no_infill(served.text.name, "input_suffix")
    files, before, after = infill_texts(fields, family)
    gap, ends = infill_prompt(served, before, after, "input_suffix")
    return await _generation(served, request, ignored, fields, files + gap, ends)


async def embedding(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /embedding."""
    body = await served.body(request)
    encoder_of(served, "embeddings")
    fields, ignored = await served.checked(request, body, EMBEDDING.fields_of, EMBEDDING)
    served.check_model(fields.get("model"))
    norm = fields.get("embd_normalize", 2)
    if norm not in (-1, 2):
        raise UnsupportedError(
            f"'embd_normalize' {norm} is not built; 2 (length 1) and -1 (as they are) are",
            param="embd_normalize",
            code="unsupported_parameter",
        )
    given = fields["content"]
    generation = Encoding(served, request, {}, "embeddings", "content")
    texts = given if isinstance(given, list) else [given]
    rows = await generation.embed(texts, None, None, norm == 2)
    return await response_by_pieces(partial(_rows, rows.values), ignored)


def _rows(values: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    return [{"index": i, "embedding": [list(row)]} for i, row in enumerate(values)]


async def props(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """GET /props."""
    text, capacity = served.text, served.engine.capacity
    special = text.chat_template.special_tokens
    settings = {"n_ctx": capacity.context, "params": dict(text.sampling)}
    return json_response(
        {
            "default_generation_settings": settings,
            "total_slots": capacity.max_batch,
            "model_alias": text.name,
            "model_path": text.name,
            "chat_template": text.chat_template.source or "",
            "bos_token": special.get("bos_token") or "",
            "eos_token": special.get("eos_token") or "",
            "modalities": {"vision": served.sees, "audio": served.hears},
            "build_info": f"mlcc {__version__}",
        }
    )


async def slots(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """GET /slots: one per sequence of the batch; as many are busy as requests are in flight."""
    capacity, in_flight = served.engine.capacity, served.engine.in_flight
    return json_response(
        [
            {"id": number, "n_ctx": capacity.context, "is_processing": number < in_flight}
            for number in range(capacity.max_batch)
        ]
    )


async def _generation(
    served: ServedModel,
    request: ApiRequest,
    ignored: Mapping[str, str],
    fields: Mapping[str, Any],
    prompt: Any,
    ends: Sequence[int] = (),
) -> ApiResponse:
    started = time.monotonic_ns()
    body = completion_body(fields, prompt, ends)
    generation = await generate_completion(served, request, body, field_names(fields))
    ignored = merged_headers(ignored, generation.ignored)
    settings = {name: value for name, value in fields.items() if name not in NOT_OURS}
    shown = fields["prompt"] if isinstance(prompt, TextWithMedia) else prompt
    if isinstance(shown, Mapping):
        shown = shown["prompt_string"]
    pieces, job = Pieces(served.text.name, shown, settings), generation.job
    if fields.get("stream"):
        await generation.accepted()
        made = _events(generation, pieces, started, True)
        return events_response(_lines(generation, made), job.close, lambda: job.failure, ignored)
    try:
        *_, answer = [event async for event in _events(generation, pieces, started, False)]
    finally:
        job.close()
    wanted = fields.get("response_fields", ())
    return await generation.written(partial(only, answer, wanted), ignored)


async def _events(
    generation: Generation, pieces: Pieces, started: int, streamed: bool
) -> AsyncIterator[Payload]:
    first = 0
    async for chunk in generation.stream():
        for event in pieces.take(chunk):
            first = first or time.monotonic_ns()
            yield event
    ended = time.monotonic_ns()
    first = first or ended
    yield pieces.end(generation.matched, first - started, ended - first, streamed)


async def _lines(generation: Generation, events: AsyncIterator[Payload]) -> AsyncIterator[str]:
    """Each event as a server-sent event; a failure is the last one, without a [DONE]."""
    try:
        async for event in events:
            yield f"data: {to_json(event)}\n\n"
    except MlccError as error:
        generation.job.failure = error
        yield f"data: {to_json(error_body(error))}\n\n"


HANDLERS: Handlers = {
    LLAMACPP_COMPLETION: complete,
    LLAMACPP_COMPLETIONS: complete,
    LLAMACPP_INFILL: infill,
    LLAMACPP_EMBEDDING: embedding,
    LLAMACPP_PROPS: props,
    LLAMACPP_SLOTS: slots,
}
