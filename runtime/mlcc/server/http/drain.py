"""Draining at shutdown: running requests finish, new ones are refused."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mlcc.api.errors import BusyError
from mlcc.server.http.errors import error_response_for, path_of
from mlcc.service.http.routes import HEALTH, KSERVE_LIVE, READY

NOT_DRAINED = (HEALTH.path, KSERVE_LIVE.path, "/metrics")
"""Paths that are answered to the end, for monitoring."""
_POLL_S = 0.05


class DrainState:
    """Number of running requests, and whether the server drains. One per server; belongs to its
    event loop."""

    def __init__(self) -> None:
        self.in_flight = 0
        """Running requests, except those of NOT_DRAINED."""
        self.draining = False

    async def drain(self, seconds: float) -> bool:
        """Refuse new requests, and return once none is running or after so many seconds. Returns
        whether all finished."""
        self.draining = True
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._empty(), seconds)
        return not self.in_flight

    async def _empty(self) -> None:
        while self.in_flight:
            await asyncio.sleep(_POLL_S)


class DrainGate:
    """ASGI middleware: counts running requests, and refuses new ones while the server drains."""

    def __init__(self, app: ASGIApp, drain_state: DrainState) -> None:
        self._app = app
        self._state = drain_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope) if scope["type"] == "http" else ""
        if not path or path in NOT_DRAINED:
            return await self._app(scope, receive, send)
        if self._state.draining:
            return await _closing(scope, path)(scope, receive, send)
        self._state.in_flight += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._state.in_flight -= 1


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
