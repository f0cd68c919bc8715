"""Ollama's routes about models, embeddings included, and those that are refused. Shapes are in
`mlcc.api.ollama.models`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from mlcc.api.errors import NotFoundError
from mlcc.api.ollama.fields import EMBED, NAMED
from mlcc.api.ollama.models import RUNNING, VERSION, capabilities, entry, loaded, show
from mlcc.api.ollama.request import model_name
from mlcc.api.openai.embeddings import MOST_TEXTS
from mlcc.api.schema.unknown_fields import header, unknown
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.model.model import ModelText
from mlcc.service.embeddings import Encoding, Rows
from mlcc.service.http.json_pieces import response_by_pieces
from mlcc.service.http.router import Handlers, ServiceHandlers
from mlcc.service.http.routes import (
    OLLAMA_EMBED,
    OLLAMA_EMBEDDINGS,
    OLLAMA_PS,
    OLLAMA_PULL,
    OLLAMA_REFUSED,
    OLLAMA_ROOT,
    OLLAMA_SHOW,
    OLLAMA_TAGS,
    OLLAMA_VERSION,
)
from mlcc.service.http.types import (
    TEXT_TYPE,
    ApiRequest,
    ApiResponse,
    json_response,
    lines_response,
    read_json,
    to_json,
)
from mlcc.service.served_model import Models, PullStep, ServedModel
from mlcc.version import __version__

_MOST_NAME = 64 << 10
"""Largest body in bytes of a request that holds only a name."""


def abilities(text: ModelText) -> list[str]:
    """Abilities, by tokenizer and chat template. Tools work for all models through the prompt, but
    are listed only if the template supports them."""
    output_format = text.output_format
    return capabilities(
        output_format.native,
        text.infill is not None,
        output_format.tags is not None,
        text.vision is not None,
    )


async def root(models: Models, request: ApiRequest) -> ApiResponse:
    """GET and HEAD /, by which clients detect a server."""
    return ApiResponse(200, {"content-type": TEXT_TYPE}, f"{RUNNING}\n")


async def version(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /api/version: the version of Ollama's API, and of mlcc."""
    return json_response({"version": VERSION, "mlcc": __version__})


async def tags(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /api/tags."""
    rows = [entry(each.name, since(each.created), each.info) for each in models.entries()]
    return json_response({"models": rows})


async def running(models: Models, request: ApiRequest) -> ApiResponse:
    """GET /api/ps."""
    rows = [
        loaded(each.name, since(each.created), each.info, each.context)
        for each in models.entries()
        if each.state == "loaded"
    ]
    return json_response({"models": rows})


async def show_model(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /api/show."""
    body = await served.body(request)
    name, ignored = await served.checked(request, body, partial(_named, served), NAMED)
    served.check_model(name)
    text = served.text
    model = show(
        text.name,
        since(served.created),
        text.info,
        served.engine.capacity.context,
        text.chat_template.source or "",
        text.sampling,
        abilities(served.text),
    )
    return json_response(model, headers=ignored)


async def pull(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /api/pull: success for a model that is here; a server of several fetches others."""
    if (served := models.only) is not None:
        body = await served.body(request)
        name, ignored = await served.checked(request, body, partial(_named, served), NAMED)
    else:
        body = await read_json(request, _MOST_NAME)
        name, ignored = _name_in(NAMED.check(body, "")), header(unknown(NAMED, body))
    steps = None if _is_here(models, name) else models.pull(name)
    if body.get("stream", True):
        return lines_response(_pulled(steps), lambda: None, lambda: None, ignored)
    if steps is not None:
        async for _ in steps:
            pass
    return json_response({"status": "success"}, headers=ignored)


def _is_here(models: Models, name: str) -> bool:
    try:
        models.entry(name)
    except NotFoundError:
        return False
    return True


async def embed(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /api/embed: embeddings of length 1."""
    began = time.monotonic()
    rows, ignored = await _embedded(served, request)
    seconds = time.monotonic() - began
    answer = {
        "model": served.text.name,
        "embeddings": rows.values,
        "total_duration": round(seconds * 1e9),
        "load_duration": 0,
        "prompt_eval_count": rows.tokens,
    }
    return await response_by_pieces(lambda: answer, ignored)


async def embed_one(served: ServedModel, request: ApiRequest) -> ApiResponse:
    """POST /api/embeddings: the older path, for one text."""
    rows, ignored = await _embedded(served, request, 1)
    return json_response({"embedding": rows.values[0] if rows.values else []}, headers=ignored)


async def _embedded(
    served: ServedModel, request: ApiRequest, most: int = MOST_TEXTS
) -> tuple[Rows, dict[str, str]]:
    body = await served.body(request)
    fields, ignored = await served.checked(request, body, EMBED.fields_of, EMBED)
    served.check_model(model_name(fields.get("model", ""), served.text.name))
    given = fields.get("input", fields.get("prompt", []))
    texts = given if isinstance(given, list) else [given]
    if "input" in fields and "prompt" in fields:
        raise InvalidRequestError(
            "'input' and 'prompt' both say what is wanted; leave 'prompt' out",
            param="prompt",
            code="invalid_value",
        )
    if len(texts) > most:
        raise InvalidRequestError(
            f"'input' has {len(texts)} texts and this address answers one; send them to "
            f"{OLLAMA_EMBED.path}",
            param="input",
            code="invalid_value",
        )
    cut = {"truncate_prompt_tokens": -1} if fields.get("truncate", True) else {}
    generation = Encoding(
        served, request, cut, "embeddings", "input" if "input" in fields else "prompt"
    )
    rows = await generation.embed(texts, None, fields.get("dimensions") or None, True)
    return rows, ignored


async def refused(models: Models, request: ApiRequest) -> ApiResponse:
    """The routes that change a model store, which this server does not have."""
    raise UnsupportedError(
        f"{request.method} {request.path} is not built: this server serves one compiled model and "
        "keeps no others; use `mlcc compile` and `mlcc cache`",
        code="unsupported_address",
    )


async def _pulled(steps: AsyncGenerator[PullStep, None] | None) -> AsyncIterator[str]:
    """The lines of a pull; an error is one of them."""
    try:
        if steps is None:
            yield _line({"status": "it is here"})
        else:
            async with aclosing(steps):
                async for step in steps:
                    counted = {"total": step.total, "completed": step.done}
                    yield _line({"status": step.status, **(counted if step.total else {})})
        yield _line({"status": "success"})
    except MlccError as error:
        yield _line({"error": error.message})


def _line(value: dict[str, Any]) -> str:
    return f"{to_json(value)}\n"


def _named(served: ServedModel, body: Any) -> str:
    return model_name(_name_in(NAMED.check(body, "")), served.text.name)


def _name_in(fields: Mapping[str, Any]) -> str:
    name: str = fields.get("model") or fields.get("name") or ""
    if not name:
        raise InvalidRequestError(
            "'model' is missing; it must be the model's name",
            param="model",
            code="missing_required_parameter",
        )
    return name


def since(seconds: float) -> str:
    """A time of this clock in RFC 3339, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f"{seconds % 1:.6f}Z"[1:]


HANDLERS: Handlers = {
    OLLAMA_SHOW: show_model,
    OLLAMA_EMBED: embed,
    OLLAMA_EMBEDDINGS: embed_one,
}
SERVICE_HANDLERS: ServiceHandlers = {
    OLLAMA_ROOT: root,
    OLLAMA_VERSION: version,
    OLLAMA_TAGS: tags,
    OLLAMA_PS: running,
    OLLAMA_PULL: pull,
    **dict.fromkeys(OLLAMA_REFUSED, refused),
}
