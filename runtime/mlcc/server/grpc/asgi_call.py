"""A request to the server's own ASGI application, without a connection: keys, limits, metrics, logs
and the drain are those of HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

_AHEAD = 8
"""Pieces of a body that wait for their reader; the application waits at one more."""


@dataclass(frozen=True)
class Answer:
    """A response whose head has come."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes] = field(repr=False)

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces])

    async def json(self) -> Any:
        """The whole body, which is JSON; None if it is empty."""
        body = await self.read()
        return json.loads(body) if body else None

    async def events(self) -> AsyncIterator[Any]:
        """The values of server-sent events, which are JSON."""
        rest = b""
        async for piece in self.pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])


@asynccontextmanager
async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    headers: Sequence[tuple[str, str]],
    body: bytes = b"",
    client: tuple[str, int] | None = None,
) -> AsyncIterator[Answer]:
    """The application's answer. Leaving the block cancels what is left of the work, as a client
    does that closes its connection."""
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [*lines, (b"content-length", b"%d" % len(body))],
        "client": client,
        "server": None,
        "state": {},
    }
    messages: asyncio.Queue[Message | None] = asyncio.Queue(_AHEAD)
    unread = [body]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await asyncio.Future()  # who leaves cancels the task

    async def run() -> None:
        try:
            await app(scope, receive, messages.put)
        finally:
            with suppress(asyncio.QueueFull):  # then the reader finds the task ended
                messages.put_nowait(None)

    task = asyncio.ensure_future(run())

    async def pieces() -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await _next(messages, task)
            if data := message.get("body", b""):
                yield data
            more = message.get("more_body", False)

    try:
        start = await _next(messages, task)
        found = {k.decode("latin-1"): value.decode("latin-1") for k, value in start["headers"]}
        yield Answer(start["status"], found, pieces())
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


async def _next(messages: asyncio.Queue[Message | None], task: asyncio.Task[None]) -> Message:
    """The next message. Raises what ended the application instead of one."""
    found = None if task.done() and messages.empty() else await messages.get()
    if found is None:
        await task
        raise RuntimeError("the server's application ended before its answer did")
    return found
