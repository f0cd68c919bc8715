"""HTTP requests and responses as plain values, and JSON bodies parsed within bounds.

Reading bytes from a connection is the transport's task.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import field, replace
from json import JSONEncoder
from typing import Any, NoReturn

from mlcc.api.anthropic.errors import anthropic_error
from mlcc.api.errors import BodyTooLargeError, MediaTypeError, error_body, error_headers
from mlcc.api.ollama.answer import error_line
from mlcc.errors import InvalidRequestError, MlccError
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


MAX_DEPTH = 128
"""Of arrays and objects in each other. Some thousands would overflow WebAssembly's stack, which
ends the tab; no field of a request needs a tenth of it."""
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


async def read_json(request: ApiRequest, limit: int) -> Any:
    """The body. Raises InvalidRequestError, BodyTooLargeError or MediaTypeError.

    The content type matters: a web page of any origin may post text/plain to a server without
    asking, but not application/json.
    """
    if request.parsed is not None:
        return request.parsed.value
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise MediaTypeError(
            f"the body is declared as '{kind or 'nothing'}'; send the header "
            f"'Content-Type: {JSON_TYPE}'",
            code="unsupported_media_type",
        )
    body = await request.read()
    check_size(len(body), limit)
    return _parse(body)


def check_size(size: int, limit: int) -> None:
    """Raise BodyTooLargeError if a body has, or will have, more bytes than the limit."""
    if size > limit:
        raise BodyTooLargeError(
            f"the body is larger than {limit} bytes; shorten the conversation or allow more "
            "(--max-body of `mlcc serve`)",
            code="body_too_large",
        )


def _parse(body: bytes) -> Any:
    try:
        text = body.decode()  # from bytes, json would guess at UTF-16 and UTF-32 too
        _check_depth(text)
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}", code="invalid_json") from None


def _check_depth(text: str) -> None:
    """Raise ValueError if arrays and objects are nested too deeply, in time linear in the text."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is too deeply nested (more than {MAX_DEPTH} levels)")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
