"""A replica: the ordinary engine process, its asyncio end, and what it says to who asks.

Plain asyncio, which Ray Serve runs in a process of its own (`on_ray`). A process that ends is
started again here, as in a server (`mlcc.worker.client`); what Ray starts again is this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeVar

from mlcc.api.errors import BusyError
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.scale.messages import Ask, Described, Look, Piece, Said
from mlcc.scale.routed import ForeignReplicaError
from mlcc.worker.client import WorkerClient
from mlcc.worker.messages import Accepted, AskSketch, Dropped, Events, Refused, Reply, Sketch
from mlcc.worker.process import EngineProcess
from mlcc.worker.worker import OpenModel

T = TypeVar("T")
_PATIENCE_S = 1.0


class Replica:
    """Made outside the event loop in which it then answers. Raises what `open_model` raises."""

    def __init__(self, open_model: OpenModel, artifact: str, max_queue: int) -> None:
        self._process = EngineProcess(open_model)
        self._client = ReplicaClient(self._process, max_queue)
        self._artifact = artifact
        self._begun = False
        self._sketch: Sketch | None = None

    def described(self) -> Described:
        """What it is."""
        return Described(self._artifact, self._process.capacity, self._process.notes)

    async def answer(self, ask: Ask) -> AsyncIterator[Piece]:
        """What the engine says of a request, as much at a time as has come meanwhile. A piece costs
        a millisecond on its way through Ray, whatever is in it."""
        if ask.artifact != self._artifact:
            yield [
                Dropped(
                    ForeignReplicaError(
                        f"a replica runs {self._artifact or 'a model'}, not {ask.artifact}"
                    )
                )
            ]
            return
        self._begin()
        async for piece in gathered(self._said(ask)):
            yield piece

    async def look(self) -> Look:
        """What it has and does; in a long step what it told last."""
        self._begin()
        with suppress(asyncio.TimeoutError, MlccError):
            self._sketch = await asyncio.wait_for(self._client.sketch(), _PATIENCE_S)
        capacity, sketch = self._process.capacity, self._sketch
        sizes = [group.page_size if group.has_pages else 0 for group in capacity.groups]
        page = sizes[0] if len(sizes) == 1 else 0
        stats, hashes = (sketch.stats, sketch.hashes) if sketch else (None, b"")
        return Look(self._artifact, capacity.max_batch, page, stats, hashes)

    def check(self) -> None:
        """Raises MlccError if nothing will be answered here any more."""
        self._client.check_alive()

    def close(self) -> None:
        """End the engine. Idempotent."""
        self._client.stop("the replica is shutting down")
        self._process.close()

    def _begin(self) -> None:
        """In the loop in which it is first asked."""
        if not self._begun:
            self._begun = True
            self._client.start()

    async def _said(self, ask: Ask) -> AsyncIterator[Said]:
        request, job = ask.request, None
        try:
            job = self._client.submit([request], None)
            await job.accepted()
            yield Accepted(request.id)
            async for _, event in job.events():
                yield Events([event])
        except (InvalidRequestError, UnsupportedError) as error:
            yield Refused(request.id, error)
        except MlccError as error:
            yield Dropped(error)
        finally:
            if job is not None:
                job.close()


class ReplicaClient(WorkerClient):
    """A `WorkerClient` that also asks for the prefix cache's sketch."""

    def __init__(self, process: EngineProcess, max_queue: int) -> None:
        super().__init__(process, max_queue)
        self._looking: list[asyncio.Future[Sketch]] = []

    async def sketch(self) -> Sketch:
        """Raises BusyError while no engine runs."""
        self._check_running()
        future: asyncio.Future[Sketch] = asyncio.get_running_loop().create_future()
        self._looking.append(future)
        self._say(AskSketch())
        return await future

    def _take(self, reply: Reply) -> None:
        if isinstance(reply, Sketch):
            if self._looking and not (future := self._looking.pop(0)).done():
                future.set_result(reply)
        else:
            super()._take(reply)

    def _lose(self, error: MlccError) -> None:
        looking, self._looking = self._looking, []
        for future in looking:
            if not future.done():
                future.set_exception(BusyError("the engine is being started"))
        super()._lose(error)


async def gathered(said: AsyncIterator[T]) -> AsyncIterator[list[T]]:
    """What came while the last piece was being taken, together. Raises what `said` raises."""
    queue: asyncio.Queue[T | None] = asyncio.Queue()

    async def fill() -> None:
        try:
            async for one in said:
                queue.put_nowait(one)
        finally:
            queue.put_nowait(None)

    filling, over = asyncio.ensure_future(fill()), False
    try:
        while not over:
            piece = [await queue.get()]
            while not queue.empty():
                piece.append(queue.get_nowait())
            over = piece[-1] is None
            if found := [one for one in piece if one is not None]:
                yield found
        await filling
    finally:
        filling.cancel()
