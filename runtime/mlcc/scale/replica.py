"""A replica: the ordinary engine process, its asyncio end, and what it says to who asks.

Plain asyncio, which Ray Serve runs in a process of its own (`on_ray`). A process that ends is
started again here, as in a server (`mlcc.worker.client`); what Ray starts again is this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TypeVar

from mlcc.api.errors import BusyError, EngineDiedError
from mlcc.engine.events import Event, TextDelta
from mlcc.engine.request import Request
from mlcc.errors import InvalidRequestError, MlccError, UnsupportedError
from mlcc.model.kv_transfer import without_pages
from mlcc.scale.messages import (
    Handoff,
    ReplicaCall,
    ReplicaInfo,
    ReplicaReply,
    ReplicaSnapshot,
    ReplyBatch,
)
from mlcc.scale.routed_engine import ForeignReplicaError, ReplicaLostError, StartingReplicaError
from mlcc.worker.client import WorkerClient
from mlcc.worker.messages import (
    Accepted,
    Add,
    Dropped,
    EngineSnapshot,
    Events,
    Exported,
    GetSnapshot,
    Refused,
    Reply,
    Resume,
)
from mlcc.worker.process import EngineProcess
from mlcc.worker.worker import OpenModel

T = TypeVar("T")
_SNAPSHOT_TIMEOUT_S = 1.0


class Replica:
    """Made outside the event loop in which it then answers. Raises what `open_model` raises."""

    def __init__(
        self, open_model: OpenModel, artifact: str, max_queue: int, name: str = ""
    ) -> None:
        """name: by which who asks avoids it."""
        self._process = EngineProcess(open_model)
        self._client = ReplicaClient(self._process, max_queue)
        self._artifact, self._name = artifact, name
        self._begun, self._numbers = False, count()
        self._last: EngineSnapshot | None = None

    def info(self) -> ReplicaInfo:
        """What it is."""
        return ReplicaInfo(self._artifact, self._process.capacity, self._process.notes)

    async def generate(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        """What the engine says of a request, as much at a time as has come meanwhile. A piece costs
        a millisecond on its way through Ray, whatever is in it."""
        if call.artifact != self._artifact:
            yield [
                Dropped(
                    ForeignReplicaError(
                        f"a replica runs {self._artifact or 'a model'}, not {call.artifact}"
                    )
                )
            ]
            return
        self._begin()
        if not self.ready:
            error = StartingReplicaError("a replica's engine is being started", self._name)
            yield [Dropped(error)]
            return
        async for piece in batched(self._replies(call)):
            yield piece

    async def snapshot(self) -> ReplicaSnapshot:
        """What it has and does; in a long step what it told last."""
        self._begin()
        with suppress(asyncio.TimeoutError, MlccError):
            self._last = await asyncio.wait_for(self._client.snapshot(), _SNAPSHOT_TIMEOUT_S)
        capacity, snapshot = self._process.capacity, self._last
        sizes = [group.page_size if group.has_pages else 0 for group in capacity.groups]
        page = sizes[0] if len(sizes) == 1 else 0
        stats, hashes = (snapshot.stats, snapshot.hashes) if snapshot else (None, b"")
        return ReplicaSnapshot(self._artifact, capacity.max_batch, page, stats, hashes)

    @property
    def ready(self) -> bool:
        """Whether an engine runs here, or will when it is first asked."""
        return self._client.ready or not self._begun

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

    async def _replies(self, call: ReplicaCall) -> AsyncIterator[ReplicaReply]:
        """Under a name of its own: one that was lost and comes again may find itself here."""
        name, client, job = call.request.id, self._client, None
        request = replace(call.request, id=f"{name}/{next(self._numbers)}")
        try:
            client.expect(request.id, call)
            job = client.submit([request], None)
            await job.accepted()
            yield Accepted(name)
            async for _, event in job.events():
                yield Events([event._replace(request_id=name)])
        except (InvalidRequestError, UnsupportedError) as error:
            yield Refused(name, error)
        except MlccError as error:
            if (data := client.exported.pop(request.id, None)) is None:
                yield Dropped(self._lost(error))
            else:
                yield Handoff(data, without_pages(data, client.capacity.groups))
        finally:
            client.migrating.pop(request.id, None)
            client.exported.pop(request.id, None)
            if job is not None:
                job.close()

    def _lost(self, error: MlccError) -> MlccError:
        """What the engine died of is its own, not the request's."""
        if isinstance(error, EngineDiedError | BusyError):
            return ReplicaLostError(error.message, self._name)
        return error


class ReplicaClient(WorkerClient):
    """A `WorkerClient` that also asks for the prefix digest, and whose requests may come
    from other engines and leave for others."""

    def __init__(self, process: EngineProcess, max_queue: int) -> None:
        super().__init__(process, max_queue)
        self._snapshot_waiters: list[asyncio.Future[EngineSnapshot]] = []
        self.migrating: dict[str, ReplicaCall] = {}
        """Of live requests that do not begin here, or end here."""
        self.exported: dict[str, bytes] = {}
        """Those that left, before anybody took them; they are cancelled here then."""

    def expect(self, name: str, call: ReplicaCall) -> None:
        """Before a request is submitted: what is to become of it."""
        if call.prefill_only or call.state is not None:
            self.migrating[name] = call

    def _add(self, request: Request) -> None:
        migrated = self.migrating.get(request.id)
        if migrated is not None and migrated.state is not None:
            self._send(Resume(request.id, migrated.state))
        else:
            self._send(Add(request, migrated is not None))

    async def snapshot(self) -> EngineSnapshot:
        """Raises BusyError while no engine runs."""
        self._check_running()
        future: asyncio.Future[EngineSnapshot] = asyncio.get_running_loop().create_future()
        self._snapshot_waiters.append(future)
        self._send(GetSnapshot())
        return await future

    def _deliver(self, events: Iterable[Event]) -> None:
        """Of one that left, what its cancelling brings is not new."""
        exported = self.exported
        super()._deliver(
            e for e in events if e.request_id not in exported or not isinstance(e, TextDelta)
        )

    def _handle_reply(self, reply: Reply) -> None:
        if isinstance(reply, EngineSnapshot):
            if self._snapshot_waiters and not (future := self._snapshot_waiters.pop(0)).done():
                future.set_result(reply)
        elif isinstance(reply, Exported):
            if reply.request_id in self.migrating:
                self.exported[reply.request_id] = reply.data
        else:
            super()._handle_reply(reply)

    def _engine_lost(self, error: MlccError) -> None:
        waiters, self._snapshot_waiters = self._snapshot_waiters, []
        for future in waiters:
            if not future.done():
                future.set_exception(BusyError("the engine is being started"))
        super()._engine_lost(error)
        # what it keeps for the next engine may be answered by another replica, and sooner
        self._fail_jobs({live.job for live in self._owners.values()}, self._died_error(error))


async def batched(replies: AsyncIterator[T]) -> AsyncIterator[list[T]]:
    """What came while the last piece was being taken, together. Raises what `replies` raises."""
    queue: asyncio.Queue[T | None] = asyncio.Queue()

    async def fill() -> None:
        try:
            async for one in replies:
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
        await asyncio.wait([filling])  # nothing of it goes on behind its end
