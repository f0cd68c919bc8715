"""A replica: an engine process, its asyncio client, and the replies to its callers.

Plain asyncio; Ray Serve runs it in a process of its own (`deployments`). An engine process that
ends is restarted here, as in a server (`mlcc.worker.client`); Ray restarts the replica itself.
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
    """To be created outside the event loop that later uses it. Raises what `open_model` raises."""

    def __init__(
        self, open_model: OpenModel, artifact: str, max_queue: int, name: str = ""
    ) -> None:
        """`name` lets callers avoid this replica in a retry."""
        self._process = EngineProcess(open_model)
        self._client = ReplicaClient(self._process, max_queue)
        self._artifact, self._name = artifact, name
        self._begun, self._numbers = False, count()
        self._last: EngineSnapshot | None = None

    def info(self) -> ReplicaInfo:
        """Return the model, capacity and notes."""
        return ReplicaInfo(self._artifact, self._process.capacity, self._process.notes)

    async def generate(self, call: ReplicaCall) -> AsyncIterator[ReplyBatch]:
        """Stream the engine's replies to a request, batched: a message costs about a millisecond in
        Ray, whatever its size."""
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
        """Return the current snapshot; during a long step, the engine's last one."""
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
        """Whether an engine runs, or will start with the first request."""
        return self._client.ready or not self._begun

    def check(self) -> None:
        """Raise MlccError if this replica will never answer again."""
        self._client.check_alive()

    def close(self) -> None:
        """Stop the engine. Idempotent."""
        self._client.stop("the replica is shutting down")
        self._process.close()

    def _begin(self) -> None:
        """Start the client in the event loop of the first call."""
        if not self._begun:
            self._begun = True
            self._client.start()

    async def _replies(self, call: ReplicaCall) -> AsyncIterator[ReplicaReply]:
        """Run the request under an id of its own: a request that was lost and retried may return to
        this replica."""
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
        """Map an engine failure to ReplicaLostError: the request is not the cause."""
        if isinstance(error, EngineDiedError | BusyError):
            return ReplicaLostError(error.message, self._name)
        return error


class ReplicaClient(WorkerClient):
    """A `WorkerClient` with engine snapshots and request migration."""

    def __init__(self, process: EngineProcess, max_queue: int) -> None:
        super().__init__(process, max_queue)
        self._snapshot_waiters: list[asyncio.Future[EngineSnapshot]] = []
        self.migrating: dict[str, ReplicaCall] = {}
        """Live requests that are imported from, or exported to, another engine."""
        self.exported: dict[str, bytes] = {}
        """Exported requests that have not been picked up; their local copies are being
        cancelled."""

    def expect(self, name: str, call: ReplicaCall) -> None:
        """Register a migrating request; call it before the request is submitted."""
        if call.prefill_only or call.state is not None:
            self.migrating[name] = call

    def _add(self, request: Request) -> None:
        migrated = self.migrating.get(request.id)
        if migrated is not None and migrated.state is not None:
            self._send(Resume(request.id, migrated.state))
        else:
            self._send(Add(request, migrated is not None))

    async def snapshot(self) -> EngineSnapshot:
        """Return the engine's snapshot. Raises BusyError while no engine runs."""
        self._check_running()
        future: asyncio.Future[EngineSnapshot] = asyncio.get_running_loop().create_future()
        self._snapshot_waiters.append(future)
        self._send(GetSnapshot())
        return await future

    def _deliver(self, events: Iterable[Event]) -> None:
        """Deliver events, except text of exported requests: cancelling them flushes text that was
        sent already."""
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
        # another replica can answer these requests sooner than the restarted engine
        self._fail_jobs({live.job for live in self._owners.values()}, self._died_error(error))


async def batched(replies: AsyncIterator[T]) -> AsyncIterator[list[T]]:
    """Group the items that arrive while the consumer handles the previous group. Raises what
    `replies` raises."""
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
        await asyncio.wait([filling])  # wait until the task has really ended
