"""Runs requests through a service as tasks of the event loop, for JavaScript and C hosts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from mlcc.api.errors import CancelledError, internal_error
from mlcc.errors import MlccError
from mlcc.service.http.types import ApiRequest, ApiResponse, FormPart, Whole, no_form
from mlcc.service.service import Service

_log = logging.getLogger(__name__)


class Reply(Protocol):
    """Port: receives a response while it is generated."""

    def start(self, status: int, headers: str) -> None:
        """Called once, unless the call is cancelled before; `headers` is a JSON object."""
        ...

    def write(self, text: str) -> None:
        """A piece of the body; of a stream, a whole event."""
        ...

    def end(self, failure: MlccError | None) -> None:
        """The last call, unless `fail` is. `failure`: the error that the body of a stream reports,
        or CancelledError."""
        ...

    def fail(self, message: str) -> None:
        """The last call: a bug ended the response."""
        ...


class Call:
    """A running request."""

    def __init__(self, task: asyncio.Task[MlccError | None]) -> None:
        self._task = task

    def cancel(self) -> None:
        """Cancel it: nothing more is written. Idempotent."""
        self._task.cancel()


class Calls:
    """All running requests."""

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
        form: Callable[[int], AsyncIterator[FormPart]] = no_form,
    ) -> Call:
        """Run a request. `reply.end` is also called for a cancelled one.

        `path` as in a URL; `headers` a JSON object with lower-case names; `form` as in
        `ApiRequest`.
        """
        path, _, query = path.partition("?")
        names = json.loads(headers)
        request = ApiRequest(method, _decoded(path), names, read, query=query, form=form)
        task = asyncio.get_running_loop().create_task(self._answer(request, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: _end(done, reply))
        return Call(task)

    async def ended(self) -> None:
        """Wait until no request runs any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(self, request: ApiRequest, reply: Reply) -> MlccError | None:
        response = await self._service.answer(request)
        try:
            await _write(response, reply)
        finally:
            response.close()
        return None if isinstance(response.body, Whole) else response.failure()


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
    if isinstance(response.body, Whole):
        reply.write(str(response.body))
        return
    async for line in response.body:
        reply.write(line)


def _decoded(path: str) -> str:
    """Return the percent-decoded path, as HTTP servers see it."""
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    return path
