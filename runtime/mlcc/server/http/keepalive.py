"""Signs of life in a stream of server-sent events that says nothing: proxies end what is silent."""

from __future__ import annotations

import asyncio
import math
import time
from types import TracebackType

from starlette.types import Send

COMMENT = b":\n\n"
"""Means nothing to whoever reads server-sent events (HTML Standard, 9.2.6)."""


class Keepalive:
    """`async with Pulse(send, 15) as pulse:` sends a comment after each 15 seconds of silence,
    which `pulse.sent` ends; none with math.inf."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._last = time.monotonic()

    def sent(self) -> None:
        """Something has been sent."""
        self._last = time.monotonic()

    async def __aenter__(self) -> Keepalive:
        beats = self._seconds < math.inf
        self._task = asyncio.ensure_future(self._beat()) if beats else None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _beat(self) -> None:
        while True:
            silent = time.monotonic() - self._last
            if silent < self._seconds:
                await asyncio.sleep(self._seconds - silent)
                continue
            self.sent()
            await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
