"""Models loaded and unloaded by request, through the routes of llama.cpp's router mode."""

from __future__ import annotations

from mlcc.api.schema.admin_fields import NAMED_MODEL
from mlcc.service.http.router import ServiceHandlers
from mlcc.service.http.routes import LOAD, UNLOAD
from mlcc.service.http.types import ApiRequest, ApiResponse, json_response, read_json
from mlcc.service.protocols.openai import shown
from mlcc.service.served_model import Models

_MOST = 64 << 10
"""Largest body in bytes; it holds only a name."""


async def load(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /models/load: answers when it is loaded."""
    return json_response(shown(await models.load(await _name(request))))


async def unload(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /models/unload: answers when its memory is free."""
    return json_response(shown(await models.unload(await _name(request))))


async def _name(request: ApiRequest) -> str:
    body = await read_json(request, _MOST)
    name: str = NAMED_MODEL.check(body, "")["model"]
    return name


SERVICE_HANDLERS: ServiceHandlers = {LOAD: load, UNLOAD: unload}
