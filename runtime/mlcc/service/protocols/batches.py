"""OpenAI's Batch API: files of requests that are answered while no other request is."""

from __future__ import annotations

from mlcc.api.openai.batches import BATCH
from mlcc.api.schema.unknown_fields import header, unknown
from mlcc.service.batches import Batches
from mlcc.service.http.router import BatchHandlers
from mlcc.service.http.routes import BATCH as BATCH_ROUTE
from mlcc.service.http.routes import BATCH_CANCEL, BATCH_CREATE, BATCHES
from mlcc.service.http.types import ApiRequest, ApiResponse, json_response, read_json
from mlcc.service.protocols.files import page_of

_MOST = 64 << 10
"""Largest body in bytes; it names a file."""


async def create(batches: Batches, request: ApiRequest) -> ApiResponse:
    """POST /v1/batches."""
    body = await read_json(request, _MOST)
    made = await batches.create(request.tenant, BATCH.fields_of(body))
    return json_response(made, headers=header(unknown(BATCH, body)))


async def list_batches(batches: Batches, request: ApiRequest) -> ApiResponse:
    """GET /v1/batches."""
    return json_response(await batches.list(request.tenant, page_of(request)))


async def get(batches: Batches, request: ApiRequest) -> ApiResponse:
    """GET /v1/batches/{name}."""
    return json_response(await batches.get(request.tenant, request.parameters["name"]))


async def cancel(batches: Batches, request: ApiRequest) -> ApiResponse:
    """POST /v1/batches/{name}/cancel."""
    return json_response(await batches.cancel(request.tenant, request.parameters["name"]))


BATCH_HANDLERS: BatchHandlers = {
    BATCH_CREATE: create,
    BATCHES: list_batches,
    BATCH_ROUTE: get,
    BATCH_CANCEL: cancel,
}
