"""OpenAI's routes: completions, models, health. Other protocols are translated to these shapes."""

from __future__ import annotations

from mlcc.api.errors import EngineDiedError
from mlcc.api.openai.models import model
from mlcc.api.openai.shapes import Model
from mlcc.errors import MlccError
from mlcc.service.generate import Generation, generate_chat, generate_completion
from mlcc.service.http.router import Handlers, ServiceHandlers
from mlcc.service.http.routes import CHAT_COMPLETIONS, COMPLETIONS, HEALTH, MODEL, MODELS, READY
from mlcc.service.http.sse import lines, sends_lines
from mlcc.service.http.types import ApiRequest, ApiResponse, events_response, json_response
from mlcc.service.served_model import ModelEntry, Models, ServedModel


async def health(models: Models, request: ApiRequest) -> ApiResponse:
    """200 with the counters of each engine, or 503. It needs no key, so the reason is an error's
    class, never its text, which may contain paths. Counters and names, which tell what other
    tenants do, need one."""
    if (served := models.only) is None:
        about = {} if request.anonymous else {"models": await models.counters()}
        return json_response({"status": "sleeping" if models.asleep else "ok", **about})
    if models.asleep and not served.engine.dead:
        named = {} if request.anonymous else {"model": served.text.name}
        return json_response({"status": "sleeping", **named})
    try:
        counters = await served.engine.counters()
    except MlccError as error:
        return json_response({"status": "dead", "reason": _reason(error)}, 503)
    status = "ok" if counters["engine"] else "busy" if served.engine.ready else "starting"
    if request.anonymous:
        return json_response({"status": status})
    return json_response({"status": status, "model": served.text.name, **counters})


async def ready(models: Models, request: ApiRequest) -> ApiResponse:
    """200 if requests are answered now, else 503, for load balancers. A server that loads models on
    demand is ready."""
    served = models.only
    is_ready = not models.asleep if served is None else served.engine.ready
    if is_ready:
        return json_response({"status": "ready"})
    dead = served.engine.dead if served else None
    reason = _reason(dead) if dead else "Sleeping" if models.asleep else "EngineStarting"
    return json_response({"status": "not ready", "reason": reason}, 503, {"Retry-After": "1"})


def _reason(error: MlccError) -> str:
    return error.reason if isinstance(error, EngineDiedError) else type(error).__name__


async def list_models(models: Models, request: ApiRequest) -> ApiResponse:
    """All models; empty if the engine is dead."""
    entries = models.entries()
    return json_response({"object": "list", "data": [shown(entry) for entry in entries]})


async def get_model(models: Models, request: ApiRequest) -> ApiResponse:
    """A model, by one of its names."""
    if not (name := request.parameters["name"]):  # /v1/models/
        return await list_models(models, request)
    return json_response(shown(models.entry(name)))


def shown(entry: ModelEntry) -> Model:
    """A model in the shape of /v1/models."""
    return model(
        entry.name,
        entry.created,
        state=entry.state,
        context=entry.context,
        aliases=entry.aliases,
        memory_bytes=entry.memory_bytes,
        requests=entry.in_flight,
        parent=entry.parent,
        progress=entry.progress,
        sampling=entry.info.sampling,
        image_size=entry.info.image_size,
        hears=entry.info.hears,
    )


async def chat(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/chat/completions."""
    body = await served.body(request)
    return await _answered(await generate_chat(served, request, body), body)


async def complete(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /v1/completions."""
    body = await served.body(request)
    return await _answered(await generate_completion(served, request, body), body)


async def _answered(generation: Generation, body: dict[str, object]) -> ApiResponse:
    if not body.get("stream"):
        return await generation.answer()
    await generation.accepted()
    job = generation.job
    made, attach = lines(generation), sends_lines(generation)
    return events_response(made, job.close, lambda: job.failure, generation.ignored, attach)


HANDLERS: Handlers = {
    CHAT_COMPLETIONS: chat,
    COMPLETIONS: complete,
}
SERVICE_HANDLERS: ServiceHandlers = {
    HEALTH: health,
    READY: ready,
    MODELS: list_models,
    MODEL: get_model,
}
