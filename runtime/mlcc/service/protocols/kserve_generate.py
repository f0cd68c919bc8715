"""Triton's generate extension: /v2/models/NAME/generate and generate_stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from mlcc.api.kserve.errors import kserve_error
from mlcc.api.kserve.fields import GENERATE
from mlcc.api.schema.field_names import FieldNames
from mlcc.errors import MlccError
from mlcc.service.generate import Generation, generate_completion
from mlcc.service.http.router import Handlers
from mlcc.service.http.routes import KSERVE_GENERATE, KSERVE_GENERATE_STREAM
from mlcc.service.http.types import ApiRequest, ApiResponse, events_response, to_json
from mlcc.service.protocols.kserve import VERSION
from mlcc.service.served_model import ServedModel

_NAMES = FieldNames({"prompt": "text_input"})
_OWN = ("text_input", "parameters", "exclude_input_in_output")
_SAME = {"stop_words": "stop", "random_seed": "seed"}


async def generate(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v2/models/NAME/generate."""
    generation, about, before = await _begin(served, request)
    job = generation.job
    try:
        deltas = await job.deltas()
    finally:
        job.close()

    def make() -> dict[str, str]:
        return {**about, "text_output": before + job.joined(deltas)[0].text}

    return await generation.written(make, generation.ignored)


async def generate_stream(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v2/models/NAME/generate_stream."""
    generation, about, before = await _begin(served, request)
    await generation.accepted()
    job, lines = generation.job, _lines(generation, about, before)
    return events_response(lines, job.close, lambda: job.failure, generation.ignored)


async def _begin(
    served: ServedModel, request: ApiRequest
) -> tuple[Generation, dict[str, str], str]:
    """The generation, what each answer begins with, and the text before it."""
    body = await served.body(request)
    name = request.parameters["model"]
    served.check_model(name)
    given = await request.offload.check(lambda: _merged(body))
    fields = GENERATE.check(given, "")
    wanted = {**_completion_fields(given), **_translated(fields)}
    generation = await generate_completion(
        served, request, {**wanted, "prompt": fields["text_input"], "model": name}, _NAMES
    )
    before = "" if fields.get("exclude_input_in_output", True) else fields["text_input"]
    return generation, {"model_name": name, "model_version": VERSION}, before


def _merged(body: Any) -> dict[str, Any]:
    """The body with its `parameters` beside the text. Raises InvalidRequestError."""
    parameters = GENERATE.check(body, "").get("parameters", {})
    return {**parameters, **body}


def _completion_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a completion; unknown ones too, which are named as ignored."""
    return {name: value for name, value in given.items() if name not in GENERATE.names}


def _translated(fields: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _OWN:
            continue
        if name == "bad_words" and isinstance(value, str):
            value = [value]
        if name in ("bad_words", "stop_words"):
            value = [word for word in ([value] if isinstance(value, str) else value) if word]
            if not value:
                continue
        made[_SAME.get(name, name)] = value
    return made


async def _lines(
    generation: Generation, about: Mapping[str, str], before: str
) -> AsyncIterator[str]:
    """Each piece of the text as a server-sent event; a failure is the last one."""
    try:
        async for chunk in generation.stream():
            for choice in chunk["choices"]:
                text, before = before + str(choice.get("text", "")), ""
                if text:
                    yield f"data: {to_json({**about, 'text_output': text})}\n\n"
    except MlccError as error:
        generation.job.failure = error
        yield f"data: {to_json(kserve_error(error))}\n\n"


HANDLERS: Handlers = {KSERVE_GENERATE: generate, KSERVE_GENERATE_STREAM: generate_stream}
