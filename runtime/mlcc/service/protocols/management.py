"""Loading and unloading by hand, at the addresses that llama.cpp's router has for it."""

from __future__ import annotations

from mlcc.api.management import NAMED_MODEL
from mlcc.service.addresses import LOAD, UNLOAD
from mlcc.service.body import read_json
from mlcc.service.exchange import ApiRequest, ApiResponse, json_response
from mlcc.service.models import Models
from mlcc.service.protocols.openai import shown
from mlcc.service.routes import PlaceHandlers

_MOST = 64 << 10
"""Bytes of a body that holds a name."""


async def load(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /models/load: answers when it is there."""
    return json_response(shown(await models.load(await _name(request))))


async def unload(models: Models, request: ApiRequest) -> ApiResponse:
    """POST /models/unload: answers when its memory is free."""
    return json_response(shown(await models.unload(await _name(request))))


async def _name(request: ApiRequest) -> str:
    body = await read_json(request, _MOST)
    name: str = NAMED_MODEL.check(body, "")["model"]
    return name


PLACE_HANDLERS: PlaceHandlers = {LOAD: load, UNLOAD: unload}
