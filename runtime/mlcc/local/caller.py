"""Calls `mlcc.service` from other threads and event loops: fields in, objects out.

The service runs in its own event loop and thread, so that any number of threads and tasks share one
engine, which batches their requests.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread, current_thread
from typing import Any, TypeVar

from mlcc.api.errors import EngineDiedError
from mlcc.errors import MlccError
from mlcc.local.view import View, encoded
from mlcc.service.adapters import AdapterEntry, check_name
from mlcc.service.http.types import JSON_TYPE, ApiRequest, ApiResponse, FormPart, Whole
from mlcc.service.served_model import OneModel, ServedModel, ServiceBounds
from mlcc.service.service import Service
from mlcc.worker.client import EngineThread, WorkerClient
from mlcc.worker.worker import OpenModel

T = TypeVar("T")
BOUNDS = ServiceBounds(max_body_bytes=1 << 40, timeout_s=None)
"""No limits: the program itself can stop a request."""
MAX_QUEUE = 1 << 30
_DATA, _DONE = "data: ", "[DONE]"


class Caller:
    """One engine and its service."""

    def __init__(self, open_model: OpenModel) -> None:
        self._engine = EngineThread(open_model)
        self._client = WorkerClient(self._engine, MAX_QUEUE, "Create another engine")
        text = self._engine.model.text
        self.name, self.capacity = text.name, self._engine.capacity
        self.notes = self._engine.notes
        self._service = Service(OneModel(ServedModel(self._client, text, BOUNDS)))
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="mlcc-service", daemon=True)
        self._thread.start()
        self._loop.call_soon_threadsafe(self._client.start)
        self._closed = False

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Schedule `ask`, `stream` or `Chunks.next` in the loop; cancelling the future ends it."""
        if self._closed:
            work.close()
            raise EngineDiedError("the engine was closed; create another", code="engine_closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """The service's response to any request, errors included."""
        return await self._service.answer(request)

    async def ask(self, method: str, path: str, fields: Mapping[str, Any] | None = None) -> View:
        """A whole answer. Raises the same MlccError as a server would return."""
        response = await self._service.answer(_request(method, path, fields))
        _check(response)
        assert isinstance(response.body, Whole)
        return View(json.loads(str(response.body)))

    async def send(self, path: str, fields: Mapping[str, str], file: bytes) -> Any:
        """The answer to a form with a file: a view, or a text. Raises as `ask`."""
        response = await self._service.answer(_form(path, fields, file))
        _check(response)
        assert isinstance(response.body, Whole)
        is_json, text = response.headers["content-type"] == JSON_TYPE, str(response.body)
        return View(json.loads(text)) if is_json else text

    async def load_adapter(self, name: str, folder: str | Path, in_place: bool) -> None:
        """Load a PEFT folder. Raises MlccError for a bad folder or name."""
        entry = AdapterEntry(check_name(name, (self.name,), "name"), Path(folder).absolute())
        await self._client.load_adapter(entry, in_place)

    async def unload_adapter(self, name: str) -> None:
        """Raises NotFoundError."""
        await self._client.unload_adapter(name)

    async def stream(self, path: str, fields: Mapping[str, Any]) -> Chunks:
        """A streamed answer. Raises as `ask`, before the first piece or between pieces."""
        response = await self._service.answer(_request("POST", path, fields))
        _check(response)
        return Chunks(response, self._loop)

    def close(self) -> None:
        """Stop the engine; waiting callers get an EngineDiedError. Idempotent.

        May be called from any thread: the garbage collector may close a forgotten engine in one of
        its own threads, which cannot wait for itself.
        """
        if self._closed:
            return
        self._closed = True
        if current_thread() is self._thread or self._engine.is_current():
            Thread(target=self._close).start()
        else:
            self._close()

    def _close(self) -> None:
        self._loop.call_soon_threadsafe(self._client.stop, "the engine was closed")
        self._engine.close()
        asyncio.run_coroutine_threadsafe(self._rest(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _rest(self) -> None:
        """Let callers that received the end finish."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others) if others else None


class Chunks:
    """The pieces of one answer. Used in the service's loop, except `close`."""

    def __init__(self, response: ApiResponse, loop: asyncio.AbstractEventLoop) -> None:
        assert not isinstance(response.body, Whole)
        self._lines: AsyncIterator[str] = response.body
        self._response, self._loop = response, loop

    async def next(self) -> View | None:
        """The next piece; None at the end. Raises MlccError if the answer cannot continue."""
        async for line in self._lines:
            text = line.removeprefix(_DATA).strip()
            if error := self._response.failure():
                raise error.with_traceback(None)
            return None if text == _DONE else View(json.loads(text))
        return None

    def close(self) -> None:
        """Cancel the answer if it is not complete. May be called from any thread; idempotent."""
        with suppress(RuntimeError):  # the loop is closed, and all answers with it
            self._loop.call_soon_threadsafe(self._response.close)


def _request(method: str, path: str, fields: Mapping[str, Any] | None) -> ApiRequest:
    body = b"" if fields is None else encoded(fields)

    async def read() -> bytes:
        return body

    return ApiRequest(method, path, {"content-type": JSON_TYPE}, read)


def _form(path: str, fields: Mapping[str, str], file: bytes) -> ApiRequest:
    async def pieces(data: bytes) -> AsyncIterator[bytes]:
        yield data

    async def parts(most: int) -> AsyncIterator[FormPart]:
        for name, text in fields.items():
            yield FormPart(name, None, pieces(text.encode()))
        yield FormPart("file", "file", pieces(file))

    return ApiRequest("POST", path, form=parts)


def _check(response: ApiResponse) -> None:
    if error := response.failure():
        raise error.with_traceback(None)
    if response.status != 200:
        raise MlccError(f"the service answered {response.status}: {response.body}")
