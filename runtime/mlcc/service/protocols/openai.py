"""OpenAI's addresses: the words that everything here is written in."""

from __future__ import annotations

from mlcc.api.errors import EngineDiedError
from mlcc.api.responses import model, models
from mlcc.errors import MlccError
from mlcc.service.addresses import CHAT_COMPLETIONS, COMPLETIONS, HEALTH, MODEL, MODELS, READY
from mlcc.service.core import Asked, Core
from mlcc.service.events import lines
from mlcc.service.exchange import ApiRequest, ApiResponse, events_response, json_response
from mlcc.service.routes import Handlers


async def health(core: Core, request: ApiRequest) -> ApiResponse:
    """200 with the engine's counters, or 503. Anybody may ask: the reason is an error's class, and
    never its text, which may name folders."""
    try:
        counters = await core.engine.counters()
    except MlccError as error:
        return json_response({"status": "dead", "reason": _reason(error)}, 503)
    status = "ok" if counters["engine"] else "busy" if core.engine.ready else "starting"
    return json_response({"status": status, "model": core.text.name, **counters})


async def ready(core: Core, request: ApiRequest) -> ApiResponse:
    """200 if what is asked now is answered now, 503 while not: for who divides requests among
    servers."""
    if not (dead := core.engine.dead) and core.engine.ready:
        return json_response({"status": "ready"})
    reason = _reason(dead) if dead else "EngineStarting"
    return json_response({"status": "not ready", "reason": reason}, 503, {"Retry-After": "1"})


def _reason(error: MlccError) -> str:
    return error.reason if isinstance(error, EngineDiedError) else type(error).__name__


async def list_models(core: Core, request: ApiRequest) -> ApiResponse:
    """The one model; none where nothing answers any more."""
    core.engine.check_alive()
    return json_response(models([core.text.name], core.created, core.engine.capacity.context))


async def get_model(core: Core, request: ApiRequest) -> ApiResponse:
    """The one model, by its name."""
    core.engine.check_alive()
    if not (name := request.parameters["name"]):  # /v1/models/
        return await list_models(core, request)
    core.check_model(name)
    return json_response(model(name, core.created, core.engine.capacity.context))


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
    HEALTH: health,
    READY: ready,
    MODELS: list_models,
    MODEL: get_model,
    CHAT_COMPLETIONS: chat,
    COMPLETIONS: complete,
}
