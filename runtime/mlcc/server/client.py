"""The engine's process as seen from asyncio: jobs go in, their events come out.

Two threads move messages, so that neither a busy engine nor a long prompt holds up the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from queue import SimpleQueue
from threading import Thread

from mlcc.api.errors import BusyError, EngineDiedError
from mlcc.engine.batch import Capacity
from mlcc.engine.engine import Stats
from mlcc.engine.request import Request
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.server.job import Job
from mlcc.server.messages import (
    Accepted,
    Add,
    AskStats,
    Cancel,
    Command,
    Events,
    Failed,
    Refused,
    Reply,
)
from mlcc.server.process import EngineProcess

_PATIENCE_S = 5.0


class EngineClient:
    """One per server. `start` in the event loop; everything but the threads runs in that loop."""

    def __init__(self, process: EngineProcess, max_queue: int) -> None:
        self.dead: EngineDiedError | None = None
        self._process = process
        self._limit = max_queue + process.capacity.max_batch
        self._owners: dict[str, Job] = {}
        self._asking: list[asyncio.Future[Stats]] = []
        self._outbox: SimpleQueue[Command | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def capacity(self) -> Capacity:
        return self._process.capacity

    @property
    def live(self) -> int:
        """Requests that are waiting or being answered."""
        return len(self._owners)

    def start(self) -> None:
        """Begin to move messages. Needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        Thread(target=self._write, name="to-engine", daemon=True).start()
        Thread(target=self._read, name="from-engine", daemon=True).start()

    def stop_soon(self) -> None:
        """`stop` for signal handlers and other threads."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Fail what is still waiting; the process is its owner's to close. Idempotent."""
        self._die("the server is shutting down")
        self._outbox.put(None)

    def check_room(self, count: int) -> None:
        """Raise BusyError or EngineDiedError if `count` more requests cannot be taken now,
        InvalidRequestError if they never can be."""
        if self.dead:
            raise self.dead
        if count > self._limit:
            raise InvalidRequestError(
                f"the request has {count} prompts and this server takes {self._limit} at most; "
                "send fewer at once or start the server with a larger --max-queue",
                param="prompt",
                code="too_many_prompts",
            )
        if self.live + count > self._limit:
            raise BusyError(
                f"{self.live} requests are live and the limit is {self._limit}; try again later "
                "or start the server with a larger --max-queue",
                code="queue_full",
            )

    def submit(self, requests: list[Request], timeout_s: float) -> Job:
        """Queue the requests of one HTTP request. Raises what `check_room` raises."""
        self.check_room(len(requests))
        job = Job([request.id for request in requests], self._forget, timeout_s)
        for request in requests:
            self._owners[request.id] = job
            self._outbox.put(Add(request))
        return job

    async def stats(self) -> Stats | None:
        """The engine's counters, None if it is in a long step. Raises EngineDiedError."""
        if self.dead:
            raise self.dead
        future: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self._asking.append(future)
        self._outbox.put(AskStats())
        try:
            return await asyncio.wait_for(future, _PATIENCE_S)
        except asyncio.TimeoutError:
            return None

    def _forget(self, request_id: str, finished: bool) -> None:
        """A job is done with a request."""
        if self._owners.pop(request_id, None) is not None and not finished and not self.dead:
            self._outbox.put(Cancel(request_id))

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # it is gone: the reader says so
            while (command := self._outbox.get()) is not None:
                self._process.send(command)

    def _read(self) -> None:
        try:
            while True:
                self._in_loop(self._process.receive())
        except (EOFError, OSError):
            self._in_loop(Failed(MlccError(self._process.why_it_ended())))

    def _in_loop(self, reply: Reply) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._take, reply)

    def _take(self, reply: Reply) -> None:
        if isinstance(reply, Events):
            for event in reply.events:
                if job := self._owners.get(event.request_id):
                    job.put(event)
        elif isinstance(reply, (Accepted, Refused)):
            if job := self._owners.get(reply.request_id):
                job.put(reply)
        elif isinstance(reply, Stats):
            future = self._asking.pop(0)
            if not future.done():
                future.set_result(reply)
        elif isinstance(reply, Failed):
            self._die(reply.error.message)

    def _die(self, why: str) -> None:
        """Nothing more will come: say so to all who wait. The first reason is the one kept."""
        if self.dead:
            return
        self.dead = EngineDiedError(
            f"{why}; the answer is lost. Start `mlcc serve` again", code="engine_died"
        )
        for future in self._asking:
            if not future.done():
                future.set_exception(self.dead)
        for job in set(self._owners.values()):
            job.fail(self.dead)
