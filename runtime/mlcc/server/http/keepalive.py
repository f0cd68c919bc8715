"""Keepalive comments in silent event streams: proxies close idle connections."""

from __future__ import annotations

import asyncio
import math
import time
from types import TracebackType

from starlette.types import Send

COMMENT = b":\n\n"
"""An empty comment of server-sent events (HTML Standard, 9.2.6)."""


class Keepalive:
    """`async with Keepalive(send, 15) as keepalive:` sends a comment after each 15 seconds of
    silence; `keepalive.sent` restarts the clock. math.inf = never."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._last = time.monotonic()

    def sent(self) -> None:
        """Data has been sent."""
        self._last = time.monotonic()

    async def __aenter__(self) -> Keepalive:
        enabled = self._seconds < math.inf
        self._task = asyncio.ensure_future(self._run()) if enabled else None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None  # else both would keep each other, until a full collection

    async def _run(self) -> None:
        while True:
            silent = time.monotonic() - self._last
            if silent < self._seconds:
                await asyncio.sleep(self._seconds - silent)
                continue
            self.sent()
            await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
