"""Request ids and the access log: each request gets an id, returned in a header, and a log line.
Prompts and answers are never logged."""

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
from mlcc.server.asgi import WRITER, headers_of
from mlcc.server.auth.keyring import RESPONSE_HEADERS, TENANT
from mlcc.server.http.errors import path_of

HEADER = "x-request-id"
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the request that the current code runs for."""
_GOOD_ID = re.compile(r"[!-~]{1,128}")

log = logging.getLogger("mlcc.access")


@dataclass
class RequestRecord:
    """One request and its response, so far. Times are in seconds."""

    id: str
    method: str
    path: str
    client: str
    key: str = ""
    """Name of the API key, if one was needed."""
    status: int = 0
    """0 = the client left before a response."""
    sent: int = 0
    """Bytes of the response body."""
    to_first: float = 0.0
    """Seconds until the response headers."""
    total: float = 0.0


class Listener(Protocol):
    """Notified of requests, in the event loop."""

    def began(self, record: RequestRecord, scope: Scope, /) -> None: ...

    def ended(self, record: RequestRecord, /) -> None: ...


class RequestLog:
    """Outermost ASGI middleware: request ids, the access log, and listeners."""

    def __init__(self, app: ASGIApp, listeners: Sequence[Listener] = ()) -> None:
        self._app = app
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began = time.perf_counter()
        record = _new_record(scope)
        state = scope.setdefault("state", {})
        REQUEST_ID.set(record.id)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.body":
                record.sent += len(message.get("body", b""))
            elif message["type"] == "http.response.start":
                record.status = message["status"]
                record.to_first = time.perf_counter() - began
                more = {HEADER: record.id, **state.get(RESPONSE_HEADERS, {})}
                lines = [(name.encode(), value.encode()) for name, value in more.items()]
                message = {**message, "headers": [*message["headers"], *lines]}
            await send(message)

        for listener in self._listeners:
            listener.began(record, scope)
        try:
            await self._app(scope, receive, answer)
        finally:
            record.total = time.perf_counter() - began
            if (writer := state.get(WRITER)) is not None:
                record.sent += writer.sent
            record.key = state.get(TENANT, "")
            for listener in self._listeners:
                listener.ended(record)
            if log.isEnabledFor(logging.INFO):
                _write(record)


def _new_record(scope: Scope) -> RequestRecord:
    given = headers_of(scope).get(HEADER, "")
    name = given if _GOOD_ID.fullmatch(given) else f"req-{os.urandom(12).hex()}"
    client = scope.get("client") or ("-",)
    return RequestRecord(name, scope["method"], path_of(scope), client[0])


def _write(record: RequestRecord) -> None:
    """Write the log line, without the query, which may contain secrets."""
    path = printable(record.path)[:200].replace('"', "%22")
    log.info(
        '%s "%s %s" %d %d bytes %.1f ms (first %.1f ms) %s',
        record.client,
        record.method,
        path,
        record.status,
        record.sent,
        1e3 * record.total,
        1e3 * record.to_first,
        record.key and f"key={record.key!r}",
        extra={
            "fields": {
                "client": record.client,
                "method": record.method,
                "path": path,
                "status": record.status,
                "bytes": record.sent,
                "seconds": round(record.total, 6),
                "first_seconds": round(record.to_first, 6),
                "key": record.key,
            }
        },
    )
