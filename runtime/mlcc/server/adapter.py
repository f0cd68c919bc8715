"""HTTP (ASGI) round the endpoints of `mlcc.service`: bytes in, bytes out, clients that leave.

What is answered is not decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from mlcc.api.errors import CancelledError, RequestTimeoutError
from mlcc.service.body import check_size
from mlcc.service.endpoints import Bounds, Service
from mlcc.service.messages import Request, Response


@dataclass(frozen=True)
class Settings:
    """What the server allows."""

    api_key: str | None = None
    max_queue: int = 64
    """Requests that may wait; those being answered are not counted."""
    max_body_bytes: int = 4 << 20
    timeout_s: float = 600.0

    @property
    def bounds(self) -> Bounds:
        """Those of a single request."""
        return Bounds(self.max_body_bytes, self.timeout_s)


class Adapter:
    """An ASGI application. A client that goes away ends the work that was done for it."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = Body(HttpRequest(scope, receive), self._settings)
        request = Request(scope["method"], scope["path"], body.headers, body.read)
        working = asyncio.ensure_future(self._work(request, send))
        leaving = asyncio.ensure_future(body.disconnected())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    async def _work(self, request: Request, send: Send) -> None:
        response = await self._service.answer(request)
        try:
            await _send(response, send)
        finally:
            response.close()


class Answering(HttpResponse):
    """A response of Starlette's that is made while it is sent: the adapter's."""

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self._adapter = adapter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._adapter(scope, receive, send)


def plain_response(response: Response) -> HttpResponse:
    """A whole response of the service's, a refusal say, as Starlette's."""
    assert isinstance(response.body, str)
    return HttpResponse(response.body, response.status, response.headers)


class Body:
    """The body of one HTTP request, and then whether its client is still there."""

    def __init__(self, http: HttpRequest, settings: Settings) -> None:
        self.headers: Mapping[str, str] = headers_of(http.scope)
        self._http = http
        self._settings = settings
        self._whole = asyncio.Event()
        """The body has been read: what comes now is about the connection."""

    async def read(self) -> bytes:
        """All of it. Raises BodyTooLargeError as soon as that is known, or RequestTimeoutError."""
        try:
            body = await asyncio.wait_for(self._read(), self._settings.timeout_s)
        except asyncio.TimeoutError:
            raise RequestTimeoutError("the body did not come in time", code="timeout") from None
        except ClientDisconnect:
            raise CancelledError("the client closed the connection") from None
        self._whole.set()
        return body

    async def disconnected(self) -> None:
        """Returns once the client is gone; never for a request whose body nobody wanted."""
        await self._whole.wait()
        while (await self._http.receive())["type"] != "http.disconnect":
            pass

    async def _read(self) -> bytes:
        limit = self._settings.max_body_bytes
        declared = self.headers.get("content-length", "")
        check_size(int(declared) if declared.isdigit() else 0, limit)
        body = bytearray()
        async for piece in self._http.stream():
            body += piece
            check_size(len(body), limit)
        return bytes(body)


def headers_of(scope: Scope) -> dict[str, str]:
    """Header lines by name, the first of each, in one pass: Starlette's own mapping looks through
    all of them for each."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


async def _send(response: Response, send: Send) -> None:
    headers = dict(response.headers)
    whole = response.body.encode() if isinstance(response.body, str) else b""
    if isinstance(response.body, str):
        headers["content-length"] = str(len(whole))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": raw})
    if not isinstance(response.body, str):
        async for line in response.body:
            await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": whole})
