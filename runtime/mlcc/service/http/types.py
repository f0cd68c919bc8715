"""A request and a response as plain values: what HTTP says, without HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import field, replace
from json import JSONEncoder
from typing import Any

from mlcc.api.anthropic.errors import anthropic_error
from mlcc.api.errors import error_body, error_headers
from mlcc.api.ollama.answer import error_line
from mlcc.errors import MlccError
from mlcc.util.fast_dataclass import fast_dataclass

JSON_TYPE = "application/json"
EVENTS_TYPE = "text/event-stream; charset=utf-8"
LINES_TYPE = "application/x-ndjson"
"""Lines of JSON, as Ollama streams."""

to_json = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Compact JSON. Made once: a stream writes a message for each token."""


async def _no_body() -> bytes:
    return b""


def _nothing() -> None:
    return None


@fast_dataclass(frozen=True)
class ParsedBody:
    """A body as JSON."""

    value: Any


@fast_dataclass(frozen=True)
class ApiRequest:
    """What is asked. `path` is decoded and without a query; names of headers are lower-case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[], Awaitable[bytes]] = _no_body
    """Brings the whole body. Awaited once, and not for a request that is refused before. May raise
    MlccError."""
    tenant: str = ""
    """Whose it is, as far as the transport knows."""
    query: str = ""
    """What follows the question mark, as it came."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What stands in the braces of the address's path; the service fills it."""
    parsed: ParsedBody | None = None
    """The body, where it has been read already; the service fills it."""


@fast_dataclass(frozen=True)
class ApiResponse:
    """What is answered: JSON at once, or the lines of a stream as they come."""

    status: int
    headers: Mapping[str, str]
    body: str | AsyncIterator[str]
    close: Callable[[], None] = _nothing
    """Ends the work behind a stream: to be called once it is read, or given up."""
    failure: Callable[[], MlccError | None] = _nothing
    """What the body says went wrong, so far: for callers in the same process."""


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> ApiResponse:
    """A whole answer."""
    return ApiResponse(status, {"content-type": JSON_TYPE, **(headers or {})}, to_json(value))


def events_response(
    lines: AsyncIterator[str],
    close: Callable[[], None],
    failure: Callable[[], MlccError | None],
    more: Mapping[str, str],
) -> ApiResponse:
    """A stream of server-sent events, which nobody on the way may keep or hold back."""
    return _stream(EVENTS_TYPE, lines, close, failure, more)


def lines_response(
    lines: AsyncIterator[str],
    close: Callable[[], None],
    failure: Callable[[], MlccError | None],
    more: Mapping[str, str],
) -> ApiResponse:
    """The same of lines of JSON."""
    return _stream(LINES_TYPE, lines, close, failure, more)


def _stream(
    kind: str,
    lines: AsyncIterator[str],
    close: Callable[[], None],
    failure: Callable[[], MlccError | None],
    more: Mapping[str, str],
) -> ApiResponse:
    headers = {"content-type": kind, "cache-control": "no-store", "x-accel-buffering": "no"}
    return ApiResponse(200, {**headers, **more}, lines, close, failure)


def error_response(error: MlccError) -> ApiResponse:
    """A refusal or a failure in OpenAI's shape."""
    return failed(error_body(error), error)


def anthropic_error_response(error: MlccError) -> ApiResponse:
    """A refusal or a failure in Anthropic's shape."""
    return failed(anthropic_error(error), error)


def ollama_error_response(error: MlccError) -> ApiResponse:
    """A refusal or a failure in Ollama's shape."""
    return failed(error_line(error), error)


def failed(body: Mapping[str, Any], error: MlccError) -> ApiResponse:
    """A refusal or a failure in any shape."""
    response = json_response(body, error.http_status, error_headers(error))
    return replace(response, failure=lambda: error)
