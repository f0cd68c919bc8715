"""What is in hand, and the end of a server: while it drains, running answers finish and nothing new
is begun.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mlcc.api.errors import BusyError
from mlcc.server.http.errors import error_response_for, path_of
from mlcc.service.http.routes import HEALTH, READY

NOT_DRAINED = (HEALTH.path, "/metrics")
"""Answered to the end: who watches the server wants to see it."""
_POLL_S = 0.05


class DrainState:
    """One per server; belongs to its event loop."""

    def __init__(self) -> None:
        self.in_hand = 0
        """Requests that are being read or answered, those of ALWAYS not counted."""
        self.draining = False

    async def drain(self, seconds: float) -> bool:
        """Begin nothing new, and return when nothing is in hand, or after so many seconds; whether
        all was finished."""
        self.draining = True
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._empty(), seconds)
        return not self.in_hand

    async def _empty(self) -> None:
        while self.in_hand:
            await asyncio.sleep(_POLL_S)


class DrainGate:
    """ASGI middleware: counts what is in hand, and refuses what comes while the server drains."""

    def __init__(self, app: ASGIApp, traffic: DrainState) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope) if scope["type"] == "http" else ""
        if not path or path in NOT_DRAINED:
            return await self._app(scope, receive, send)
        if self._traffic.draining:
            return await _closing(scope, path)(scope, receive, send)
        self._traffic.in_hand += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._traffic.in_hand -= 1


def _closing(scope: Scope, path: str) -> ASGIApp:
    headers = {"Connection": "close"}
    if path == READY.path:
        state = {"status": "not ready", "reason": "Draining"}
        return JSONResponse(state, 503, {**headers, "Retry-After": "1"})
    error = BusyError(
        "the server is shutting down and takes no new requests; ask another, or once more when it "
        "has been started again",
        code="shutting_down",
    )
    return error_response_for(scope, error, headers)
