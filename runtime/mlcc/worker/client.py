"""The engine's process as seen from asyncio. Who waits for what is `mlcc.service.engine`'s.

Two threads move messages, so that neither a busy engine nor a long prompt holds up the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import asdict
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from mlcc.api.errors import EngineDiedError
from mlcc.engine.batch import Capacity
from mlcc.engine.request import Request
from mlcc.engine.stats import Stats
from mlcc.errors import MlccError
from mlcc.service.engine import EngineClient
from mlcc.worker.messages import (
    Accepted,
    Add,
    AskStats,
    Cancel,
    Command,
    Dropped,
    Events,
    Failed,
    Refused,
    Reply,
)

log = logging.getLogger("mlcc.server")

_PATIENCE_S = 5.0


class Running(Protocol):
    """A running engine: `mlcc.worker.process`, or a thread (`mlcc.worker.thread`)."""

    capacity: Capacity

    def send(self, command: Command, /) -> None: ...

    def receive(self) -> Reply: ...

    def why_it_ended(self) -> str: ...


class WorkerClient(EngineClient):
    """One per server. `start` in the event loop; everything but the threads runs in that loop."""

    def __init__(
        self, process: Running, max_queue: int, advice: str = "Start `mlcc serve` again"
    ) -> None:
        """advice: what to do once the engine is gone."""
        super().__init__(max_queue + process.capacity.max_batch)
        self._advice = advice
        self._process = process
        self._asking: list[asyncio.Future[Stats]] = []
        self._outbox: SimpleQueue[Command | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def capacity(self) -> Capacity:
        return self._process.capacity

    def start(self) -> None:
        """Begin to move messages. Needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        Thread(target=self._write, name="to-engine", daemon=True).start()
        Thread(target=self._read, name="from-engine", daemon=True).start()

    def stop_soon(self) -> None:
        """`stop` for signal handlers and other threads."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self, why: str = "the server is shutting down") -> None:
        """Fail what is still waiting; the process is its owner's to close. Idempotent."""
        self._die(self._died(why))
        self._outbox.put(None)

    async def counters(self) -> dict[str, Any]:
        """The engine's counters, None if it is in a long step."""
        if self.dead:
            raise self.dead.with_traceback(None)
        future: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self._asking.append(future)
        self._outbox.put(AskStats())
        try:
            return {"engine": asdict(await asyncio.wait_for(future, _PATIENCE_S))}
        except asyncio.TimeoutError:
            return {"engine": None}

    def _add(self, request: Request) -> None:
        self._outbox.put(Add(request))

    def _cancel(self, request_id: str) -> None:
        self._outbox.put(Cancel(request_id))

    def _die(self, error: MlccError) -> None:
        super()._die(error)
        for future in self._asking:
            if not future.done():
                future.set_exception(error)

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
            self._deliver(reply.events)
        elif isinstance(reply, Accepted):
            self._accept(reply.request_id)
        elif isinstance(reply, Refused):
            self._refuse(reply.request_id, reply.error)
        elif isinstance(reply, Stats):
            future = self._asking.pop(0)
            if not future.done():
                future.set_result(reply)
        elif isinstance(reply, Dropped):
            self._fail(reply.error)
        elif isinstance(reply, Failed):
            if self.dead is None:  # nobody may be asking: the log must say it too
                log.error("%s; every request is refused until it is started again", reply.error)
            self._die(self._died(reply.error.message))

    def _died(self, why: str) -> EngineDiedError:
        return EngineDiedError(f"{why}; the answer is lost. {self._advice}", code="engine_died")
