"""What the server says of each request: a name that comes back in its answer, and a line in the
log. Never what was asked or answered.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mlcc.errors import printable
from mlcc.server.asgi import headers_of
from mlcc.server.auth.keyring import RESPONSE_HEADERS, TENANT
from mlcc.server.http.errors import path_of

HEADER = "x-request-id"
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that the code that runs is for."""
_GOOD_ID = re.compile(r"[!-~]{1,128}")

log = logging.getLogger("mlcc.access")


@dataclass
class RequestRecord:
    """One request and its answer, so far. Times are in seconds."""

    id: str
    method: str
    path: str
    client: str
    key: str = ""
    """The name of the key, if one was needed."""
    status: int = 0
    """0 = nobody was left to answer."""
    sent: int = 0
    """Bytes of the answer's body."""
    to_first: float = 0.0
    """Until the head of the answer."""
    total: float = 0.0


class Listener(Protocol):
    """Hears of requests, in the event loop."""

    def began(self, exchange: RequestRecord, scope: Scope, /) -> None: ...

    def ended(self, exchange: RequestRecord, /) -> None: ...


class RequestLog:
    """ASGI middleware, the outermost: a request's id in and out, the access log, and whoever else
    listens."""

    def __init__(self, app: ASGIApp, listeners: Sequence[Listener] = ()) -> None:
        self._app = app
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began = time.perf_counter()
        exchange = _new_record(scope)
        state = scope.setdefault("state", {})
        REQUEST_ID.set(exchange.id)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.body":
                exchange.sent += len(message.get("body", b""))
            elif message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.to_first = time.perf_counter() - began
                more = {HEADER: exchange.id, **state.get(RESPONSE_HEADERS, {})}
                lines = [(name.encode(), value.encode()) for name, value in more.items()]
                message = {**message, "headers": [*message["headers"], *lines]}
            await send(message)

        for listener in self._listeners:
            listener.began(exchange, scope)
        try:
            await self._app(scope, receive, answer)
        finally:
            exchange.total = time.perf_counter() - began
            exchange.key = state.get(TENANT, "")
            for listener in self._listeners:
                listener.ended(exchange)
            if log.isEnabledFor(logging.INFO):
                _write(exchange)


def _new_record(scope: Scope) -> RequestRecord:
    given = headers_of(scope).get(HEADER, "")
    name = given if _GOOD_ID.fullmatch(given) else f"req-{os.urandom(12).hex()}"
    client = scope.get("client") or ("-",)
    return RequestRecord(name, scope["method"], path_of(scope), client[0])


def _write(exchange: RequestRecord) -> None:
    """Without the query, in which some put what is secret."""
    path = printable(exchange.path)[:200].replace('"', "%22")
    log.info(
        '%s "%s %s" %d %d bytes %.1f ms (first %.1f ms) %s',
        exchange.client,
        exchange.method,
        path,
        exchange.status,
        exchange.sent,
        1e3 * exchange.total,
        1e3 * exchange.to_first,
        exchange.key and f"key={exchange.key!r}",
        extra={
            "fields": {
                "client": exchange.client,
                "method": exchange.method,
                "path": path,
                "status": exchange.status,
                "bytes": exchange.sent,
                "seconds": round(exchange.total, 6),
                "first_seconds": round(exchange.to_first, 6),
                "key": exchange.key,
            }
        },
    )
