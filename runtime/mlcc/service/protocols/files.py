"""OpenAI's Files API: the inputs and outputs of batches."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from mlcc.errors import InvalidRequestError
from mlcc.service.batches import Batches, Page
from mlcc.service.http.router import BatchHandlers
from mlcc.service.http.routes import FILE, FILE_CONTENT, FILE_CREATE, FILE_DELETE, FILES
from mlcc.service.http.types import ApiRequest, ApiResponse, file_response, json_response

FORM_OVERHEAD = 64 << 10
"""Bytes of an upload besides the file's."""
_LIMIT = re.compile(r"[0-9]{1,9}")
LISTED, MOST_LISTED = 20, 100
"""Default and largest number of entries of a page."""
MOST_FILES = 10_000
"""The largest number of files of a page, as OpenAI has it."""


async def create(batches: Batches, request: ApiRequest) -> ApiResponse:
    """POST /v1/files, a form with the fields `file` and `purpose`."""
    form = request.form(batches.max_file_bytes + FORM_OVERHEAD)
    return json_response(await batches.upload(request.tenant, form))


async def list_files(batches: Batches, request: ApiRequest) -> ApiResponse:
    """GET /v1/files."""
    return json_response(await batches.files(request.tenant, page_of(request, MOST_FILES)))


async def get(batches: Batches, request: ApiRequest) -> ApiResponse:
    """GET /v1/files/{name}."""
    return json_response(await batches.file(request.tenant, request.parameters["name"]))


async def content(batches: Batches, request: ApiRequest) -> ApiResponse:
    """GET /v1/files/{name}/content."""
    return file_response(await batches.content(request.tenant, request.parameters["name"]))


async def delete(batches: Batches, request: ApiRequest) -> ApiResponse:
    """DELETE /v1/files/{name}."""
    return json_response(await batches.delete_file(request.tenant, request.parameters["name"]))


def page_of(request: ApiRequest, most: int = MOST_LISTED) -> Page:
    """The page that a query asks for. Raises InvalidRequestError."""
    query = {name: values[-1] for name, values in parse_qs(request.query).items()}
    limit, order = query.get("limit", str(LISTED)), query.get("order", "desc")
    if not _LIMIT.fullmatch(limit) or not 1 <= int(limit) <= most:
        raise _wrong("limit", f"a whole number from 1 to {most}")
    if order not in ("asc", "desc"):
        raise _wrong("order", "'asc' or 'desc'")
    return Page(int(limit), query.get("after"), order == "desc", query.get("purpose"))


def _wrong(name: str, wants: str) -> InvalidRequestError:
    return InvalidRequestError(f"'{name}' must be {wants}", param=name, code="invalid_value")


BATCH_HANDLERS: BatchHandlers = {
    FILE_CREATE: create,
    FILES: list_files,
    FILE: get,
    FILE_CONTENT: content,
    FILE_DELETE: delete,
}
