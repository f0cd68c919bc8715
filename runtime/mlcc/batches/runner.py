"""Answers the lines of a batch, many at once, through `mlcc.service` as background requests."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mlcc.api.errors import BusyError, EngineDiedError
from mlcc.api.openai.batches import BatchLine
from mlcc.batches.journal import Journal, PendingLine
from mlcc.batches.lines import read_line
from mlcc.errors import MlccError
from mlcc.service.http.json_body import Inline, Offload
from mlcc.service.http.types import JSON_TYPE, ApiRequest, ApiResponse, Whole, error_response
from mlcc.util.private_database import DatabaseThread

Answer = Callable[[ApiRequest], Awaitable[ApiResponse]]
_PAGE = 64
"""Lines that are read at once."""
_RETRY_S = (1.0, 2.0, 4.0)
"""Pauses before a line is tried again whose engine died: the line may be the cause."""
_BUSY_S = 1.0
"""Pause before a line is tried again for which there was no memory or place."""


@dataclass(frozen=True)
class BatchInput:
    """A batch whose lines are in the journal, and the file that has their text."""

    id: str
    path: Path
    tenant: str = ""


class BatchRunner:
    """Answers lines. slots: lines of all batches that are answered at once; batches take turns.
    report: called after each answer. names_model: whether the lines choose the model; else there is
    one for all, whatever they name."""

    def __init__(
        self,
        answer: Answer,
        thread: DatabaseThread,
        journal: Journal,
        slots: asyncio.Semaphore,
        offload: Callable[[], Offload] = Inline,
        report: Callable[[], None] = lambda: None,
        names_model: bool = True,
    ) -> None:
        self._answer, self._slots, self._offload = answer, slots, offload
        self._thread, self._journal, self._report = thread, journal, report
        self._names_model = names_model

    async def run(self, batch: BatchInput) -> None:
        """Answer every line that has no answer. Cancelling it keeps the answers so far."""
        with batch.path.open("rb") as file:
            tasks: set[asyncio.Task[None]] = set()
            failures: list[BaseException] = []

            def end(task: asyncio.Task[None]) -> None:
                tasks.discard(task)
                self._slots.release()
                if not task.cancelled() and (error := task.exception()) is not None:
                    failures.append(error)

            try:
                async for line in self._pending(batch.id):
                    await self._slots.acquire()
                    task = asyncio.ensure_future(self._work(batch, file, line))
                    tasks.add(task)
                    task.add_done_callback(end)
                    if failures:
                        break
                while tasks and not failures:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if failures:  # the disk is full, or the input is gone
                    raise failures[0]
            finally:
                for task in tasks:
                    task.cancel()
                if tasks:
                    await asyncio.wait(tasks)

    async def _pending(self, batch: str) -> AsyncIterator[PendingLine]:
        after = ("", 0)
        while lines := await self._thread.run(self._journal.pending, batch, after, _PAGE):
            for line in lines:
                yield line
            after = lines[-1].place, lines[-1].number

    async def _work(self, batch: BatchInput, file: BinaryIO, line: PendingLine) -> None:
        try:
            read = await asyncio.to_thread(read_line, file, line.start, line.size)
            response = await self._answered(batch.tenant, read)
        except MlccError as error:
            response = error_response(error)
        assert isinstance(response.body, Whole)  # no line streams
        request_id = f"req_{os.urandom(12).hex()}"
        await self._thread.run(
            self._journal.record,
            batch.id,
            line.number,
            response.status,
            request_id,
            str(response.body),
        )
        self._report()

    async def _answered(self, tenant: str, line: BatchLine) -> ApiResponse:
        pauses = iter(_RETRY_S)
        while True:
            response = await self._answer(self._request(tenant, line.url, line.body))
            failure = response.failure()
            if isinstance(failure, EngineDiedError):
                with suppress(StopIteration):
                    await asyncio.sleep(next(pauses))
                    continue
            elif isinstance(failure, BusyError):
                await asyncio.sleep(_BUSY_S)
                continue
            return response

    def _request(self, tenant: str, url: str, body: Mapping[str, object]) -> ApiRequest:
        fields = {n: v for n, v in body.items() if self._names_model or n != "model"}

        async def read() -> bytes:
            return json.dumps(fields).encode()

        return ApiRequest(
            "POST",
            url,
            {"content-type": JSON_TYPE},
            read,
            tenant,
            offload=self._offload(),
            background=True,
        )
