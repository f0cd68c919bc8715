"""OpenAI's addresses: the words that everything here is written in."""

from __future__ import annotations

from mlcc.api.errors import EngineDiedError
from mlcc.api.openai.responses import model
from mlcc.api.openai.shapes import Model
from mlcc.errors import MlccError
from mlcc.service.generate import Asked, Core
from mlcc.service.http.router import Handlers, PlaceHandlers
from mlcc.service.http.routes import CHAT_COMPLETIONS, COMPLETIONS, HEALTH, MODEL, MODELS, READY
from mlcc.service.http.sse import lines
from mlcc.service.http.types import ApiRequest, ApiResponse, events_response, json_response
from mlcc.service.model_port import ModelEntry, Models


async def health(models: Models, request: ApiRequest) -> ApiResponse:
    """200 with the counters of each engine, or 503. Anybody may ask: the reason is an error's
    class, and never its text, which may name folders."""
    if (core := models.only) is None:
        return json_response({"status": "ok", "models": await models.counters()})
    try:
        counters = await core.engine.counters()
    except MlccError as error:
        return json_response({"status": "dead", "reason": _reason(error)}, 503)
    status = "ok" if counters["engine"] else "busy" if core.engine.ready else "starting"
    return json_response({"status": status, "model": core.text.name, **counters})


async def ready(models: Models, request: ApiRequest) -> ApiResponse:
    """200 if what is asked now is answered now, 503 while not: for who divides requests among
    servers. A place that loads models when they are asked for is ready."""
    core = models.only
    if core is None or (not core.engine.dead and core.engine.ready):
        return json_response({"status": "ready"})
    reason = _reason(core.engine.dead) if core.engine.dead else "EngineStarting"
    return json_response({"status": "not ready", "reason": reason}, 503, {"Retry-After": "1"})


def _reason(error: MlccError) -> str:
    return error.reason if isinstance(error, EngineDiedError) else type(error).__name__


async def list_models(models: Models, request: ApiRequest) -> ApiResponse:
    """All models; none where nothing answers any more."""
    entries = models.entries()
    return json_response({"object": "list", "data": [shown(entry) for entry in entries]})


async def get_model(models: Models, request: ApiRequest) -> ApiResponse:
    """A model, by one of its names."""
    if not (name := request.parameters["name"]):  # /v1/models/
        return await list_models(models, request)
    return json_response(shown(models.entry(name)))


def shown(entry: ModelEntry) -> Model:
    """A model as /v1/models tells it."""
    return model(
        entry.name,
        entry.created,
        state=entry.state,
        context=entry.context,
        aliases=entry.aliases,
        memory_bytes=entry.memory_bytes,
        requests=entry.live,
        parent=entry.parent,
    )


async def chat(core: Core, request: ApiRequest) -> ApiResponse:
    """POST /v1/chat/completions."""
    body = await core.body(request)
    return await _answered(await core.chat(request, body), body)


async def complete(core: Core, request: ApiRequest) -> ApiResponse:
    """POST /v1/completions."""
    body = await core.body(request)
    return await _answered(await core.complete(request, body), body)


async def _answered(asked: Asked, body: dict[str, object]) -> ApiResponse:
    if not body.get("stream"):
        return json_response(await asked.answer(), headers=asked.ignored)
    await asked.accepted()
    job = asked.job
    return events_response(lines(asked), job.close, lambda: job.failure, asked.ignored)


HANDLERS: Handlers = {
    CHAT_COMPLETIONS: chat,
    COMPLETIONS: complete,
}
PLACE_HANDLERS: PlaceHandlers = {
    HEALTH: health,
    READY: ready,
    MODELS: list_models,
    MODEL: get_model,
}
