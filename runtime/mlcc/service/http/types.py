"""HTTP requests and responses as plain values.

Reading bytes from a connection is the transport's task.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from json import JSONEncoder
from typing import Any, Protocol

from mlcc.api.anthropic.errors import anthropic_error
from mlcc.api.errors import BodyTooLargeError, MediaTypeError, error_body, error_headers
from mlcc.api.kserve.errors import kserve_error
from mlcc.api.ollama.answer import error_line
from mlcc.api.tgi.errors import tgi_error
from mlcc.errors import MlccError, UnsupportedError
from mlcc.service.http.json_body import Inline, Offload
from mlcc.util.fast_dataclass import fast_dataclass

JSON_TYPE = "application/json"
EVENTS_TYPE = "text/event-stream; charset=utf-8"
LINES_TYPE = "application/x-ndjson"
TEXT_TYPE = "text/plain; charset=utf-8"
"""JSON lines, Ollama's streams."""
FORM_TYPE = "application/x-www-form-urlencoded"
FILE_TYPE = "application/jsonl"
"""JSON lines that are a file."""
BYTES_TYPE = "application/octet-stream"

to_json = JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode
"""Compact JSON. Created once, as a stream writes a message for each token."""


async def _no_body() -> bytes:
    return b""


def _nothing() -> None:
    return None


@fast_dataclass(frozen=True)
class ParsedBody:
    """A parsed JSON body."""

    value: Any


@fast_dataclass(frozen=True)
class FormPart:
    """A field of a form (RFC 7578). `content` is read before the next part."""

    name: str
    filename: str | None
    content: AsyncIterator[bytes]


def no_form(most: int) -> AsyncIterator[FormPart]:
    raise UnsupportedError("this host takes no forms; ask `mlcc serve`", code="no_forms")


@fast_dataclass(frozen=True)
class ApiRequest:
    """A request. `path` is decoded and without a query; header names are lower-case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[], Awaitable[bytes]] = _no_body
    """Reads the whole body. Awaited at most once, and not for requests that are refused earlier.
    May raise MlccError."""
    tenant: str = ""
    """The tenant, as far as the transport knows."""
    query: str = ""
    """The query string, undecoded."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Values of the path parameters; the service fills it."""
    any_content_type: bool = False
    """Whether the route takes bodies without the content type of JSON; the service fills it."""
    parsed: ParsedBody | None = None
    """The body, once it was read; the service fills it."""
    offload: Offload = Inline()
    """Parses and checks the body."""
    anonymous: bool = False
    """Whether the request has no key on a server with keys; few routes take such requests."""
    background: bool = False
    """Whether it is a line of a batch, which runs while no other request does."""
    takes_bytes: bool = False
    """Whether the host sends bodies of bytes (`RawBytes`); elsewhere the answer is JSON."""
    form: Callable[[int], AsyncIterator[FormPart]] = no_form
    """Reads the body as a form, as it arrives, of at most that many bytes, instead of `read`. May
    raise MlccError."""


PIECE = 64 << 10
"""Characters of a piece of a long text, about. Pieces are sent one by one, and other requests get
their turn between them: 50 MB at once would take an event loop 0.2 s."""


@fast_dataclass(frozen=True)
class LongText:
    """A text in pieces: no single call copies or encodes all of it, during which no other thread
    could run. `str` joins them."""

    pieces: Sequence[str]

    def __str__(self) -> str:
        return "".join(self.pieces)


@fast_dataclass(frozen=True)
class RawBytes:
    """A body that is no text: tensors."""

    data: bytes


Whole = (str, LongText, RawBytes)
"""The types of a body that is no stream."""


class Sink(Protocol):
    """Takes lines of a stream at once."""

    def ready(self) -> bool:
        """Whether a line can be written now: the client reads, and is there."""
        ...

    def write(self, line: str) -> None: ...


Attach = Callable[[Sink], None]


def _no_sink(sink: Sink) -> None:
    return None


@fast_dataclass(frozen=True)
class ApiResponse:
    """A response: JSON at once, or the lines of a stream."""

    status: int
    headers: Mapping[str, str]
    body: str | LongText | RawBytes | AsyncIterator[str]
    close: Callable[[], None] = _nothing
    """Ends the work of a stream: call it when the stream was read or abandoned."""
    failure: Callable[[], MlccError | None] = _nothing
    """The error in the body so far, for callers in the same process."""
    attach: Attach = _no_sink
    """Give the stream a sink: while `body` waits for its next line and the sink is ready, lines may
    go there instead. Call it when all that `body` yielded has been sent."""


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
    attach: Attach = _no_sink,
) -> ApiResponse:
    """A stream of server-sent events, which proxies must neither cache nor buffer."""
    return replace(_stream(EVENTS_TYPE, lines, close, failure, more), attach=attach)


def lines_response(
    lines: AsyncIterator[str],
    close: Callable[[], None],
    failure: Callable[[], MlccError | None],
    more: Mapping[str, str],
) -> ApiResponse:
    """A stream of JSON lines."""
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


def file_response(content: AsyncIterator[str]) -> ApiResponse:
    """A file's text, in pieces."""
    return _stream(FILE_TYPE, content, _nothing, _nothing, {})


def binary_response(data: bytes, headers: Mapping[str, str]) -> ApiResponse:
    """A whole answer that is no text."""
    return ApiResponse(200, {"content-type": BYTES_TYPE, **headers}, RawBytes(data))


def error_response(error: MlccError) -> ApiResponse:
    """An error in OpenAI's shape."""
    return failed(error_body(error), error)


def anthropic_error_response(error: MlccError) -> ApiResponse:
    """An error in Anthropic's shape."""
    return failed(anthropic_error(error), error)


def ollama_error_response(error: MlccError) -> ApiResponse:
    """An error in Ollama's shape."""
    return failed(error_line(error), error)


def tgi_error_response(error: MlccError) -> ApiResponse:
    """An error in the shape of Hugging Face's TGI."""
    return failed(tgi_error(error), error)


def kserve_error_response(error: MlccError) -> ApiResponse:
    """An error in the shape of the Open Inference Protocol."""
    return failed(kserve_error(error), error)


def failed(body: Mapping[str, Any], error: MlccError) -> ApiResponse:
    """An error response with this body."""
    response = json_response(body, error.http_status, error_headers(error))
    return replace(response, failure=lambda: error)


async def read_json(request: ApiRequest, limit: int) -> Any:
    """The body. Raises InvalidRequestError, BodyTooLargeError or MediaTypeError.

    The content type matters: a web page of any origin may post text/plain to a server without
    asking, but not application/json.
    """
    if request.parsed is not None:
        return request.parsed.value
    return await request.offload.parse(await read_bytes(request, limit))


async def read_bytes(request: ApiRequest, limit: int, types: Sequence[str] = (JSON_TYPE,)) -> bytes:
    """The body of one of these content types, as bytes. Raises as `read_json`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in types and not _is_from_curl(request, kind):
        raise MediaTypeError(
            f"the body is declared as '{kind or 'nothing'}'; send the header "
            f"'Content-Type: {JSON_TYPE}'",
            code="unsupported_media_type",
        )
    body = await request.read()
    check_size(len(body), limit)
    return body


def _is_from_curl(request: ApiRequest, kind: str) -> bool:
    """Whether the route takes a body without a content type, or with that of `curl -d`, and no web
    page sent it: browsers add Origin to what a page posts, and Sec-Fetch-Site (W3C, 2021)."""
    return request.any_content_type and kind in ("", FORM_TYPE) and not is_page(request)


def is_page(request: ApiRequest) -> bool:
    """Whether a web page sent it: browsers say so in either header."""
    site = request.headers.get("sec-fetch-site", "none")
    return "origin" in request.headers or site != "none"


def check_size(size: int, limit: int) -> None:
    """Raise BodyTooLargeError if a body has, or will have, more bytes than the limit."""
    if size > limit:
        raise BodyTooLargeError(
            f"the body is larger than {limit} bytes; shorten the conversation or allow more "
            "(--max-body of `mlcc serve`)",
            code="body_too_large",
        )
