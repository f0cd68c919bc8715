"""Requests on their way through a service, each a task of this event loop, whatever host asks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from mlcc.api.errors import CancelledError, internal_error
from mlcc.errors import MlccError
from mlcc.service.http.types import ApiRequest, ApiResponse
from mlcc.service.service import Service

_log = logging.getLogger(__name__)


class Reply(Protocol):
    """Where an answer goes as it is made."""

    def start(self, status: int, headers: str) -> None:
        """Once, unless the call is cancelled before; `headers` is a JSON object."""
        ...

    def write(self, text: str) -> None:
        """A piece of the body; of a stream, a whole event."""
        ...

    def end(self, failure: MlccError | None) -> None:
        """The last, unless `fail` is. failure: what the body says went wrong with a stream, or
        CancelledError."""
        ...

    def fail(self, message: str) -> None:
        """The last: a bug ended the answer."""
        ...


class Call:
    """A request being answered."""

    def __init__(self, task: asyncio.Task[MlccError | None]) -> None:
        self._task = task

    def cancel(self) -> None:
        """Stop working on it: nothing more is written. Idempotent."""
        self._task.cancel()


class Calls:
    """All that are being answered."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: set[asyncio.Task[MlccError | None]] = set()

    def start(
        self,
        method: str,
        path: str,
        headers: str,
        read: Callable[[], Awaitable[bytes]],
        reply: Reply,
    ) -> Call:
        """Answer a request; `reply` hears of its end also when it was cancelled before.

        `path` as in a URL; `headers` a JSON object with lower-case names.
        """
        path, _, query = path.partition("?")
        request = ApiRequest(method, _decoded(path), json.loads(headers), read, query=query)
        task = asyncio.get_running_loop().create_task(self._answer(request, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: _end(done, reply))
        return Call(task)

    async def ended(self) -> None:
        """Wait until nothing is being answered any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(self, request: ApiRequest, reply: Reply) -> MlccError | None:
        response = await self._service.answer(request)
        try:
            await _write(response, reply)
        finally:
            response.close()
        return None if isinstance(response.body, str) else response.failure()


def _end(done: asyncio.Task[MlccError | None], reply: Reply) -> None:
    if done.cancelled():
        reply.end(CancelledError("the request was cancelled", code="cancelled"))
    elif error := done.exception():
        _log.error("a bug ended an answer", exc_info=error)
        reply.fail(internal_error().message)
    else:
        reply.end(done.result())


async def _write(response: ApiResponse, reply: Reply) -> None:
    reply.start(response.status, json.dumps(dict(response.headers)))
    if isinstance(response.body, str):
        reply.write(response.body)
        return
    async for line in response.body:
        reply.write(line)


def _decoded(path: str) -> str:
    """The path as servers see it: %41 for A undone."""
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    return path
