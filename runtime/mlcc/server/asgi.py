"""ASGI adapter of `mlcc.service`: reads request bodies, sends responses, and cancels the work for
clients that disconnect."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from mlcc.api.errors import (
    BodyTooLargeError,
    BusyError,
    CancelledError,
    EncodingError,
    RequestTimeoutError,
)
from mlcc.limits import default
from mlcc.server.auth.keyring import TENANT
from mlcc.server.http.compression import check_encoding, unpacked
from mlcc.server.http.errors import ROUTER, path_of
from mlcc.server.http.keepalive import COMMENT, Keepalive
from mlcc.server.http.multipart import form_of
from mlcc.server.prompts.body_reader import BodyOffload, BodyReader
from mlcc.service.adapters import AdapterEntry
from mlcc.service.http.types import (
    FILE_TYPE,
    LINES_TYPE,
    PIECE,
    ApiRequest,
    ApiResponse,
    FormPart,
    LongText,
    RawBytes,
    Whole,
    check_size,
)
from mlcc.service.served_model import ServiceBounds
from mlcc.service.service import Service

PROBE = "mlcc.probe"
"""Key in a scope's `state`: bytes without meaning in the response body, for testing whether the
client still reads."""
WRITER = "mlcc.writer"
"""Key in a scope's `state`: the `BodyWriter` of the response."""
_EVENTS = "text/event-stream"
_NO_LINE = b" "
"""A space before a line of JSON: what a comment is in server-sent events."""


class BodyWriter(Protocol):
    """Writes pieces of a response's body to the connection, past the middleware, which only looks
    at the response's start."""

    sent: int
    """Bytes written."""

    def ready(self) -> bool:
        """Whether the response has begun and the client reads."""
        ...

    def write(self, data: bytes) -> None: ...


class _Lines:
    """A `Sink` of a stream's lines."""

    def __init__(self, writer: BodyWriter, keepalive: Keepalive) -> None:
        self.ready = writer.ready
        self._write, self._keepalive = writer.write, keepalive

    def write(self, line: str) -> None:
        self._write(line.encode())
        self._keepalive.sent()


@dataclass(frozen=True)
class Settings:
    """Settings of the server."""

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """Accepted API keys; each is a tenant. Empty = no key is needed."""
    max_queue: int = default("max_queue")
    """Requests that may wait; running ones are not counted."""
    max_body_bytes: int = default("max_body_bytes")
    timeout_s: float = default("timeout_s")
    """Seconds from the end of a request's headers to the end of its response."""
    body_s: float = 60.0
    """Seconds within which the body must arrive."""
    body_rate: int = 1024
    """Bytes a second that a body must at least have, on average over each `body_window_s`."""
    body_window_s: float = 10.0
    bodies: int = 16
    """Memory for request bodies, as a multiple of max_body_bytes."""
    hosts: frozenset[str] | None = None
    """Host names accepted in Host and Origin; None = all."""
    strict_fields: bool = False
    """Refuse unknown fields."""
    files: Path | None = None
    """Folder of uploaded files and batches; None = a temporary one."""
    max_file_bytes: int = default("max_file_bytes")
    """Largest file that may be uploaded."""
    store: Path | None = None
    """SQLite file of the response store (/v1/responses); None = in memory."""
    api_key_file: Path | None = None
    """More keys, with names and limits (`key_file.py`)."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the API; "*" = all."""
    root_path: str = ""
    """The path prefix of a proxy."""
    ping_s: float = 15.0
    """Seconds of silence after which an event stream gets a keepalive."""
    drain_s: float = 30.0
    """Seconds that running requests have to finish at shutdown."""
    adapters: tuple[AdapterEntry, ...] = ()
    """LoRA adapters loaded before the first request."""
    lora_dir: Path | None = None
    """Folder from which requests may load adapters; None = none may."""
    traces: bool = False
    """Send OpenTelemetry spans to a collector (`traces.py`)."""

    @property
    def has_keys(self) -> bool:
        """Whether requests need an API key."""
        return bool(self.api_keys or self.api_key_file)

    @property
    def bounds(self) -> ServiceBounds:
        """The bounds of a single request."""
        return ServiceBounds(self.max_body_bytes, self.timeout_s, self.strict_fields)


class ServiceApp:
    """ASGI application of a `Service`. Cancels a request whose client disconnects."""

    def __init__(self, service: Service, settings: Settings, reader: BodyReader) -> None:
        self._service = service
        self._settings = settings
        self._reader = reader
        self._memory = BodyMemory(settings.bodies * settings.max_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = path_of(scope), scope["method"]
        if method == "OPTIONS" and (methods := ROUTER.methods(path)):
            implied = ["OPTIONS", "HEAD"] if "GET" in methods else ["OPTIONS"]
            allow = ", ".join(dict.fromkeys((*methods, *implied)))
            return await HttpResponse(status_code=204, headers={"Allow": allow})(
                scope, receive, send
            )
        body = RequestBody(HttpRequest(scope, receive), self._settings, self._memory)
        query = scope.get("query_string", b"").decode("latin-1")
        if method == "HEAD" and "GET" in ROUTER.methods(path):
            method = "GET"  # uvicorn omits the body
        offload = BodyOffload(self._reader)
        request = ApiRequest(
            method,
            path,
            body.headers,
            body.read,
            body.tenant,
            query,
            form=body.form,
            offload=offload,
            takes_bytes=True,
            anonymous=self._settings.has_keys and not body.tenant,
        )
        working = asyncio.ensure_future(self._work(request, body, send))
        leaving = asyncio.ensure_future(body.disconnected())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    async def _work(self, request: ApiRequest, body: RequestBody, send: Send) -> None:
        try:
            response = await self._service.answer(request)
        finally:
            body.close()
        try:
            body.scope.setdefault("state", {})
            if (probe := _probe(response)) is not None:
                body.scope["state"][PROBE] = probe
            writer = body.scope["state"].get(WRITER)
            await _send(response, send, self._settings.ping_s, writer)
        finally:
            response.close()


class ServiceResponse(HttpResponse):
    """A Starlette response that runs the `ServiceApp` while it is sent."""

    def __init__(self, service_app: ServiceApp) -> None:
        super().__init__()
        self._service_app = service_app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._service_app(scope, receive, send)


class BodyMemory:
    """Bytes of all request bodies in memory, complete or not, of requests that are not answered
    yet. With keys, a tenant may have as many bytes as are free, so that one alone gets half and
    always leaves the others something (dynamic thresholds, Choudhury and Hahne, 1998)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._used_by: dict[str, int] = {}

    def take(self, size: int, tenant: str) -> None:
        """Reserve bytes. Raises BusyError if there are not enough now."""
        own, free = self._used_by.get(tenant, 0), self._limit - self._used
        if size > free:
            raise BusyError(
                f"the requests that are being read have {self._used} bytes, and {self._limit} are "
                "the most at once; try again later or allow larger ones (--max-body of "
                "`mlcc serve`)",
                code="bodies_full",
            )
        if tenant and own + size > free - size:
            raise BusyError(
                f"the requests of the key '{tenant}' that are being read have {own} bytes, and no "
                f"key may have more than are free for others, now {free}; try again later, send "
                "fewer at once, or allow larger ones (--max-body of `mlcc serve`)",
                code="bodies_full",
            )
        self._used += size
        self._used_by[tenant] = own + size

    def give_back(self, size: int, tenant: str) -> None:
        """Release reserved bytes."""
        self._used -= size
        self._used_by[tenant] = self._used_by.get(tenant, 0) - size
        if not self._used_by[tenant]:
            del self._used_by[tenant]


class RequestBody:
    """The body of one HTTP request, and afterwards the client's connection state."""

    def __init__(self, http: HttpRequest, settings: Settings, memory: BodyMemory) -> None:
        self.scope = http.scope
        self.headers: Mapping[str, str] = headers_of(http.scope)
        self._http = http
        self._settings = settings
        self._memory = memory
        self._size = 0
        self.tenant: str = http.scope.get("state", {}).get(TENANT, "")
        self._whole = asyncio.Event()
        """Set once the body has been read: later messages concern the connection."""

    async def read(self) -> bytes:
        """Return the decompressed body. Raises BodyTooLargeError or BusyError as soon as that is
        known, RequestTimeoutError, or what `compression.py` raises."""
        seconds = min(self._settings.body_s, self._settings.timeout_s)
        try:
            body = await asyncio.wait_for(self._read(), seconds)
        except asyncio.TimeoutError:
            raise RequestTimeoutError(
                f"the body did not come within {seconds:g} seconds; send a smaller one, or faster",
                code="timeout",
            ) from None
        except ClientDisconnect:
            raise CancelledError("the client closed the connection") from None
        self._whole.set()
        return body

    async def form(self, most: int) -> AsyncIterator[FormPart]:
        """The body's parts as they arrive, of at most `most` bytes together. Raises MediaTypeError,
        BodyTooLargeError, RequestTimeoutError or InvalidRequestError."""
        if check_encoding(self.headers):
            raise EncodingError(
                "forms are not decompressed; send it without 'Content-Encoding'",
                code="unsupported_encoding",
            )
        try:
            async for part in form_of(self.headers, self._bounded(most)).parts():
                yield part
        except ClientDisconnect:
            raise CancelledError("the client closed the connection") from None
        self._whole.set()

    async def _bounded(self, most: int) -> AsyncIterator[bytes]:
        """The body as it arrives, of at most `most` bytes and within the time of a request."""
        declared, clock = self.headers.get("content-length", ""), asyncio.get_running_loop().time
        _check_form(int(declared) if declared.isdigit() else 0, most)
        size, end = 0, clock() + self._settings.timeout_s
        async for piece in self._pieces():
            size += len(piece)
            _check_form(size, most)
            if clock() > end:
                raise RequestTimeoutError(
                    f"the form did not come within {self._settings.timeout_s:g} seconds; send it "
                    "faster, or allow more time (--timeout of `mlcc serve`)",
                    code="timeout",
                )
            yield piece

    def close(self) -> None:
        """Release the body's memory. Idempotent."""
        self._memory.give_back(self._size, self.tenant)
        self._size = 0

    async def disconnected(self) -> None:
        """Return once the client has disconnected; never if the body was not read."""
        await self._whole.wait()
        while (await self._http.receive())["type"] != "http.disconnect":
            pass

    async def _read(self) -> bytes:
        limit, encoding = self._settings.max_body_bytes, check_encoding(self.headers)
        declared = self.headers.get("content-length", "")
        check_size(int(declared) if declared.isdigit() else 0, limit)
        body = bytearray()
        async for piece in self._pieces():
            check_size(len(body) + len(piece), limit)
            self._take(len(piece))
            body += piece
        if not encoding:
            return bytes(body)
        whole = await asyncio.to_thread(unpacked, bytes(body), limit)
        self._take(len(whole))
        return whole

    async def _pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises RequestTimeoutError if it is slower than `body_rate`."""
        rate, window = self._settings.body_rate, self._settings.body_window_s
        clock, more = asyncio.get_running_loop().time, True
        end, missing = clock() + window, rate * window
        while more:
            try:
                message = await asyncio.wait_for(self._http.receive(), end - clock())
            except asyncio.TimeoutError:
                raise RequestTimeoutError(
                    f"less than {rate} bytes a second of the body came in the last "
                    f"{window:g} seconds; send it faster",
                    code="timeout",
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece, more = message.get("body", b""), message.get("more_body", False)
            yield piece
            if (missing := missing - len(piece)) <= 0:
                end, missing = clock() + window, rate * window

    def _take(self, size: int) -> None:
        self._memory.take(size, self.tenant)
        self._size += size


def _check_form(size: int, most: int) -> None:
    if size > most:
        raise BodyTooLargeError(
            f"the form is larger than {most} bytes; send the lines in several files, or allow "
            "larger ones (--max-file of `mlcc serve`)",
            code="file_too_large",
        )


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers by name, the first line of each, in one pass. Starlette's mapping scans
    all lines for each lookup."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def _probe(response: ApiResponse) -> bytes | None:
    """Bytes without meaning in a stream; None = the body has no place for them."""
    if isinstance(response.body, Whole) or response.headers["content-type"] == FILE_TYPE:
        return None
    return _NO_LINE if response.headers["content-type"] == LINES_TYPE else COMMENT


def _is_events(response: ApiResponse) -> bool:
    return response.headers.get("content-type", "").startswith(_EVENTS)


async def _send(
    response: ApiResponse, send: Send, ping_s: float, writer: BodyWriter | None
) -> None:
    headers = dict(response.headers)
    pieces: list[bytes] = [b""]
    if isinstance(response.body, Whole):
        pieces = await _encoded(response.body)
        headers["content-length"] = str(sum(map(len, pieces)))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": raw})
    if not isinstance(response.body, Whole):
        async with Keepalive(send, ping_s if _is_events(response) else math.inf) as keepalive:
            if writer is not None:
                response.attach(_Lines(writer, keepalive))
            async for line in response.body:
                await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
                keepalive.sent()
    for piece in pieces[:-1]:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)  # with room in the socket's buffer `send` does not give way
    await send({"type": "http.response.body", "body": pieces[-1]})


async def _encoded(body: str | LongText | RawBytes) -> list[bytes]:
    """The body's bytes in pieces; of a long text, made in a thread."""
    if isinstance(body, RawBytes):
        data = body.data
        return [data[at : at + PIECE] for at in range(0, len(data), PIECE)] or [b""]
    if isinstance(body, str):
        if len(body) <= PIECE:
            return [body.encode()]
        body = LongText([body[at : at + PIECE] for at in range(0, len(body), PIECE)])
    pieces = body.pieces
    return await asyncio.to_thread(lambda: [piece.encode() for piece in pieces])
