"""HTTP (ASGI) round the endpoints of `mlcc.service`: bytes in, bytes out, clients that leave.

What is answered is not decided here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from mlcc.api.errors import BusyError, CancelledError, RequestTimeoutError
from mlcc.limits import default
from mlcc.server.auth.keyring import TENANT
from mlcc.server.http.compression import check_encoding, unpacked
from mlcc.server.http.errors import ROUTES, path_of
from mlcc.server.http.keepalive import COMMENT, Keepalive
from mlcc.service.adapters import AdapterEntry
from mlcc.service.generate import ServiceBounds
from mlcc.service.http.body import check_size
from mlcc.service.http.types import LINES_TYPE, ApiRequest, ApiResponse
from mlcc.service.service import Service

PROBE = "mlcc.probe"
"""In a scope's `state`: bytes that mean nothing in the body that is sent, for whoever must find out
whether its reader is still there."""
_EVENTS = "text/event-stream"
_NO_LINE = b" "
"""The space before a line of JSON, where a comment would be an event's."""
_ALSO = ("OPTIONS", "HEAD")
"""Methods of every address, and of those that are for GET."""


@dataclass(frozen=True)
class Settings:
    """What the server allows."""

    api_keys: tuple[str, ...] = ()
    """A caller must send one of them; each is a tenant. Empty = all may ask."""
    max_queue: int = default("max_queue")
    """Requests that may wait; those being answered are not counted."""
    max_body_bytes: int = default("max_body_bytes")
    timeout_s: float = default("timeout_s")
    """From a request's head to the end of its answer."""
    body_s: float = 60.0
    """A body must have come by then."""
    bodies: int = 16
    """So many of the largest bodies may be in memory at once: that many bytes, in any number."""
    hosts: frozenset[str] | None = None
    """Names that requests may be for and from; None = all."""
    strict_fields: bool = False
    """Refuse fields that nobody here knows."""
    store: Path | None = None
    """The file in which answers of /v1/responses are kept; None = in memory."""
    api_key_file: Path | None = None
    """More keys, with names and limits (`key_file.py`)."""
    cors_origins: tuple[str, ...] = ()
    """Other origins whose pages may ask; "*" = all."""
    root_path: str = ""
    """What a proxy has put before the paths."""
    ping_s: float = 15.0
    """A stream of events that is silent for so long says that it lives."""
    drain_s: float = 30.0
    """How long running answers have to finish once the server is to end."""
    adapters: tuple[AdapterEntry, ...] = ()
    """Loaded before anything is answered."""
    lora_dir: Path | None = None
    """The folder in which requests may have adapters loaded; None = none may."""
    traces: bool = False
    """Send spans to a collector (`traces.py`)."""

    @property
    def bounds(self) -> ServiceBounds:
        """Those of a single request."""
        return ServiceBounds(self.max_body_bytes, self.timeout_s, self.strict_fields)


class ServiceApp:
    """An ASGI application. A client that goes away ends the work that was done for it."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        self._memory = BodyMemory(settings.bodies * settings.max_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = path_of(scope), scope["method"]
        if method == "OPTIONS" and (methods := ROUTES.methods(path)):
            allow = ", ".join(dict.fromkeys((*methods, *_ALSO[: 2 if "GET" in methods else 1])))
            return await HttpResponse(status_code=204, headers={"Allow": allow})(
                scope, receive, send
            )
        body = RequestBody(HttpRequest(scope, receive), self._settings, self._memory)
        tenant = scope.get("state", {}).get(TENANT, "")
        query = scope.get("query_string", b"").decode("latin-1")
        if method == "HEAD" and "GET" in ROUTES.methods(path):
            method = "GET"  # uvicorn leaves the body out
        request = ApiRequest(method, path, body.headers, body.read, tenant, query)
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
            if not isinstance(response.body, str):
                in_lines = response.headers["content-type"] == LINES_TYPE
                body.scope.setdefault("state", {})[PROBE] = _NO_LINE if in_lines else COMMENT
            await _send(response, send, self._settings.ping_s)
        finally:
            response.close()


class ServiceResponse(HttpResponse):
    """A response of Starlette's that is made while it is sent: the adapter's."""

    def __init__(self, adapter: ServiceApp) -> None:
        super().__init__()
        self._adapter = adapter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._adapter(scope, receive, send)


class BodyMemory:
    """Bytes of bodies that are held, finished or not, by all requests that are not yet answered or
    being streamed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def take(self, size: int) -> None:
        """Raises BusyError if it is too much now."""
        if self._held + size > self._most:
            raise BusyError(
                f"the requests that are being read have {self._held} bytes, and {self._most} are "
                "the most at once; try again later or allow larger ones (--max-body of "
                "`mlcc serve`)",
                code="bodies_full",
            )
        self._held += size

    def give_back(self, size: int) -> None:
        """Of what was taken."""
        self._held -= size


class RequestBody:
    """The body of one HTTP request, and then whether its client is still there."""

    def __init__(self, http: HttpRequest, settings: Settings, memory: BodyMemory) -> None:
        self.scope = http.scope
        self.headers: Mapping[str, str] = headers_of(http.scope)
        self._http = http
        self._settings = settings
        self._memory = memory
        self._size = 0
        self._whole = asyncio.Event()
        """The body has been read: what comes now is about the connection."""

    async def read(self) -> bytes:
        """All of it, unpacked. Raises BodyTooLargeError or BusyError as soon as that is known,
        RequestTimeoutError, or what `encodings.py` raises."""
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

    def close(self) -> None:
        """Its bytes are no longer needed. Idempotent."""
        self._memory.give_back(self._size)
        self._size = 0

    async def disconnected(self) -> None:
        """Returns once the client is gone; never for a request whose body nobody wanted."""
        await self._whole.wait()
        while (await self._http.receive())["type"] != "http.disconnect":
            pass

    async def _read(self) -> bytes:
        limit, encoding = self._settings.max_body_bytes, check_encoding(self.headers)
        declared = self.headers.get("content-length", "")
        check_size(int(declared) if declared.isdigit() else 0, limit)
        body = bytearray()
        async for piece in self._http.stream():
            check_size(len(body) + len(piece), limit)
            self._memory.take(len(piece))
            self._size += len(piece)
            body += piece
        if not encoding:
            return bytes(body)
        whole = unpacked(bytes(body), limit)
        self._memory.take(len(whole))
        self._size += len(whole)
        return whole


def headers_of(scope: Scope) -> dict[str, str]:
    """Header lines by name, the first of each, in one pass: Starlette's own mapping looks through
    all of them for each."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def _is_events(response: ApiResponse) -> bool:
    return response.headers.get("content-type", "").startswith(_EVENTS)


async def _send(response: ApiResponse, send: Send, ping_s: float) -> None:
    headers = dict(response.headers)
    whole = response.body.encode() if isinstance(response.body, str) else b""
    if isinstance(response.body, str):
        headers["content-length"] = str(len(whole))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": raw})
    if not isinstance(response.body, str):
        async with Keepalive(send, ping_s if _is_events(response) else math.inf) as pulse:
            async for line in response.body:
                await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
                pulse.sent()
    await send({"type": "http.response.body", "body": whole})
