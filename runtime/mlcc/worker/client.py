"""Asyncio client of an engine in another process or thread. The bookkeeping of requests is in
`mlcc.service.engine_client`. `EngineThread` runs an engine in a thread of this process;
`mlcc.worker.process` runs one in another process.

Two threads move messages, so that neither a busy engine nor a long prompt blocks the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any, Protocol, TypeVar

from mlcc.api.errors import (
    BusyError,
    EngineDiedError,
    EngineDownError,
    SleepingError,
    StartError,
    internal_error,
)
from mlcc.engine.batch.batch import Capacity
from mlcc.engine.events import Stats
from mlcc.engine.request import Request
from mlcc.errors import DeviceError, MlccError
from mlcc.model.model import Model
from mlcc.service.adapters import AdapterEntry
from mlcc.service.engine_client import EngineClient
from mlcc.worker.lora_client import LoraClient
from mlcc.worker.messages import (
    Accepted,
    AdapterDone,
    Add,
    Cancel,
    Command,
    Dropped,
    Events,
    Failed,
    GetStats,
    Ready,
    Refused,
    Reply,
    Stop,
)
from mlcc.worker.worker import OpenModel, QueueChannel, run_engine

log = logging.getLogger("mlcc.server")

T = TypeVar("T")
_STATS_TIMEOUT_S = 5.0
_POLL_S = 0.02
"""Between two looks whether the last request is done."""
MAX_LOST = 1
"""Engines that may end while they hold a request that has no output yet. A request that is present
each time may be the cause."""


class RunningEngine(Protocol):
    """A running engine: a process (`EngineProcess`) or a thread (`EngineThread`)."""

    capacity: Capacity
    can_restart: bool
    """Whether `restart` can start it again, and `sleep` end it meanwhile."""

    def send(self, command: Command, /) -> None: ...

    def receive(self) -> Reply: ...

    def restart(self) -> bool: ...

    def sleep(self) -> None: ...

    def wake(self) -> None: ...

    def exit_reason(self) -> str: ...


class WorkerClient(EngineClient):
    """One per model. Call `start` in the event loop; everything except the two threads runs in that
    loop.

    If the engine process ends, it is restarted if possible. Requests with partial output fail; the
    others are sent to the new engine, once.
    """

    def __init__(
        self,
        process: RunningEngine,
        max_queue: int,
        advice: str = "Start `mlcc serve` again",
        adapters: Iterable[AdapterEntry] = (),
    ) -> None:
        """`advice`: what the user should do once the engine is gone for good. `adapters`: the LoRA
        adapters that it has loaded."""
        super().__init__(max_queue + process.capacity.max_batch)
        self._advice = advice
        self._process = process
        self._stats_waiters: list[asyncio.Future[Stats | None]] = []
        self._outbox: SimpleQueue[Command | None] | None = None
        """Queue to the running engine; None = no engine runs."""
        self._lora = LoraClient(self._send, {entry.name: entry for entry in adapters})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._changing = asyncio.Lock()
        """Held while the engine falls asleep or wakes."""
        self._waking: asyncio.Future[None] | None = None
        """Done when the engine runs again, or cannot."""

    @property
    def capacity(self) -> Capacity:
        return self._process.capacity

    @property
    def ready(self) -> bool:
        """Whether an engine runs."""
        return super().ready and self._outbox is not None

    def start(self) -> None:
        """Start the threads. Needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._outbox = SimpleQueue()
        Thread(
            target=self._supervise, args=(self._outbox,), name="from-engine", daemon=True
        ).start()

    def stop_soon(self) -> None:
        """`stop`, for signal handlers and other threads."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self, why: str = "the server is shutting down") -> None:
        """Fail all waiting requests; the owner closes the process. Idempotent."""
        self._stopped = True
        self._die(self._died_error(MlccError(why)))
        self._send(None)

    async def sleep(self, wait: bool) -> None:
        """End the engine's process, which frees all of its memory; the folder is read again by
        `wake`."""
        if not self._process.can_restart:
            return await super().sleep(wait)
        async with self._changing:
            if self.asleep:
                return
            self._check_running()
            self.asleep = SleepingError()
            try:
                await self._end_requests(wait)
            except BaseException:  # the caller was cancelled
                self.asleep = None
                raise
            await asyncio.shield(asyncio.to_thread(self._process.sleep))

    async def wake(self) -> None:
        """Start an engine's process. Raises what is wrong with the model now; BusyError while it is
        started once more, because the process ended."""
        async with self._changing:
            if self.asleep is None:
                self._check_started()
                return self._check_running()
            if self._waking is None:
                self._waking = asyncio.get_running_loop().create_future()
                self._process.wake()
            try:
                await asyncio.shield(self._waking)
            except StartError:
                self._check_started()
                raise

    def _check_started(self) -> None:
        """Raise BusyError if the engine's process ended while it loaded the model."""
        if isinstance(self.dead, EngineDiedError) and isinstance(self.dead.cause, StartError):
            raise BusyError(
                f"{self.dead.cause}. It is started again: send the request again, or wait until "
                "/ready is 200",
                code="engine_starting",
            )

    async def _end_requests(self, wait: bool) -> None:
        """Wait until no request is in flight, or fail them all."""
        while wait and self._owners:
            await asyncio.sleep(_POLL_S)
        assert self.asleep is not None
        self._fail(self.asleep)

    def _woken(self, error: MlccError | None = None) -> None:
        """The engine runs again, or does not start."""
        waking, self._waking = self._waking, None
        if waking is None:
            return
        self.asleep = None
        if waking.done():
            return
        if error is None:
            waking.set_result(None)
        else:
            waking.set_exception(error)
            waking.exception()  # its caller may have left

    @property
    def adapters(self) -> Mapping[str, AdapterEntry]:
        return self._lora.loaded

    async def load_adapter(self, entry: AdapterEntry, in_place: bool = False) -> None:
        self._check_running()
        await self._lora.load(entry, in_place)

    async def unload_adapter(self, name: str) -> None:
        self._check_running()
        await self._lora.unload(name)

    def _check_running(self) -> None:
        """Raise BusyError while the engine restarts, or `dead` if it will not come back."""
        self.check_alive()
        if self._outbox is None:
            raise BusyError("the engine is being started; try again soon", code="engine_starting")

    async def counters(self) -> dict[str, Any]:
        """Return the engine's counters; None if it is in a long step or restarting."""
        self.check_alive()
        if self._outbox is None:
            return {"engine": None}
        future: asyncio.Future[Stats | None] = asyncio.get_running_loop().create_future()
        self._stats_waiters.append(future)
        self._send(GetStats())
        try:
            found = await asyncio.wait_for(future, _STATS_TIMEOUT_S)
        except asyncio.TimeoutError:
            found = None
        return {"engine": found and asdict(found)}

    def _add(self, request: Request) -> None:
        self._send(Add(request))  # or it is sent once an engine runs again

    def _cancel(self, request_id: str) -> None:
        self._send(Cancel(request_id))

    def _send(self, command: Command | None) -> None:
        if self._outbox is not None:
            self._outbox.put(command)

    def _die(self, error: MlccError) -> None:
        super()._die(error)
        self._woken(error)
        self._finish_stats_waiters(error)
        self._lora.engine_lost(error)

    def _finish_stats_waiters(self, error: MlccError | None = None) -> None:
        """Complete the pending `counters` calls: no reply will come."""
        waiters, self._stats_waiters = self._stats_waiters, []
        for future in waiters:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _supervise(self, outbox: SimpleQueue[Command | None]) -> None:
        """Thread: run one engine after another. Each has its own outbox, so that no command reaches
        the wrong engine."""
        restart = True
        while restart:
            writer = Thread(target=self._write, args=(outbox,), name="to-engine", daemon=True)
            writer.start()
            error = self._read()
            outbox.put(None)
            writer.join()
            self._in_loop(self._engine_lost, error)
            outbox = SimpleQueue()
            if restart := self._restart():
                self._in_loop(self._engine_restarted, outbox)

    def _write(self, outbox: SimpleQueue[Command | None]) -> None:
        """Send all commands until None. One that cannot be pickled costs its own request alone: if
        this thread ended, every later request would wait for ever."""
        with contextlib.suppress(OSError):  # the engine is gone: the reader reports it
            while (command := outbox.get()) is not None:
                try:
                    self._process.send(command)
                except OSError:
                    raise
                except Exception:
                    log.exception("a command cannot be sent to the engine")
                    if isinstance(command, Add):
                        refused = Refused(command.request.id, internal_error())
                        self._in_loop(self._handle_reply, refused)

    def _read(self) -> MlccError:
        """Forward all replies to the event loop. Returns the reason once there are no more."""
        failed: MlccError | None = None
        try:
            while True:
                reply = self._process.receive()
                if isinstance(reply, Failed):
                    failed = reply.error
                else:
                    self._in_loop(self._handle_reply, reply)
        except (EOFError, OSError):
            return failed or DeviceError(self._process.exit_reason())

    def _restart(self) -> bool:
        while True:
            try:
                return self._process.restart()
            except MlccError as error:
                self._in_loop(self._restart_failed, error)
            except OSError as error:  # the system has no process or pipe left
                self._in_loop(
                    self._restart_failed, DeviceError(f"no engine process can begin: {error}")
                )

    def _in_loop(self, work: Callable[[T], None], what: T) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(work, what)

    def _handle_reply(self, reply: Reply) -> None:
        if isinstance(reply, Events):
            self._deliver(reply.events)
        elif isinstance(reply, Accepted):
            self._accept(reply.request_id)
        elif isinstance(reply, Refused):
            self._refuse(reply.request_id, reply.error)
        elif isinstance(reply, Stats):
            if self._stats_waiters and not (future := self._stats_waiters.pop(0)).done():
                future.set_result(reply)
        elif isinstance(reply, AdapterDone):
            self._lora.done(reply)
        elif isinstance(reply, Dropped):
            self._fail(reply.error)

    def _engine_lost(self, error: MlccError) -> None:
        """The engine has ended. This is also logged, because there may be no waiting request to
        report it to."""
        self._outbox = None
        if self._stopped:
            return
        if self.asleep is not None:
            self._finish_stats_waiters()
            self._lora.engine_lost(self.asleep)
            return self._fail(self.asleep)
        if not self._process.can_restart:
            log.error("%s; every request is refused until it is started again", error)
            return self._die(self._died_error(error))
        self.observer.restarted()
        self._finish_stats_waiters()
        self._lora.engine_lost(self._died_error(error))
        for live in self._owners.values():
            live.lost += 1
        lost = {live.job for live in self._owners.values() if live.started or live.lost > MAX_LOST}
        self._fail_jobs(lost, self._died_error(error))
        log.error(
            "%s; %d answers are lost, %d requests are kept; it is started again",
            error, len(lost), len(self._owners),
        )  # fmt: skip

    def _restart_failed(self, error: MlccError) -> None:
        """A restart failed. Further attempts follow, but waiting requests fail now."""
        if not self._stopped and (self.asleep is None or self._waking is not None):
            self._woken(error)
            log.error("the engine does not start: %s; it is tried again", error)
            self.dead = None  # report the last of several errors
            self._die(self._died_error(error, EngineDownError))

    def _engine_restarted(self, outbox: SimpleQueue[Command | None]) -> None:
        """A new engine runs: send it the requests without output."""
        if self._stopped:
            return
        if self._waking is None:
            log.warning("the engine is back; %d requests waited for it", len(self._owners))
        self._woken()
        self.dead = None
        self._outbox = outbox
        self._lora.reload()
        for live in self._owners.values():
            self._add(live.request)

    def _died_error(
        self, why: MlccError, kind: type[EngineDiedError] = EngineDiedError
    ) -> EngineDiedError:
        restart = self._process.can_restart and not self._stopped
        advice = "It is started again; send the request once more" if restart else self._advice
        message = f"{why}; the answer is lost. {advice}"
        return kind(message, code="engine_died", cause=why)


class EngineThread:
    """A running engine. The thread opens, runs and closes the model: TVM gives each calling thread
    its own kernel threads. Raises what `open_model` raises."""

    def __init__(self, open_model: OpenModel) -> None:
        self._open_model = open_model
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._replies: SimpleQueue[Reply | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="mlcc-engine", daemon=True)
        self._thread.start()
        try:
            ready = self.receive()
        except BaseException:  # Ctrl-C while it loads
            self.send(Stop())
            raise
        if not isinstance(ready, Ready):
            raise ready.error if isinstance(ready, Failed) else MlccError(f"unexpected {ready!r}")
        self.capacity, self.notes = ready.capacity, ready.notes

    can_restart = False

    @property
    def model(self) -> Model:
        """The model that the thread opened."""
        return self._model

    def is_current(self) -> bool:
        """Whether the caller runs in the engine thread."""
        return current_thread() is self._thread

    def send(self, command: Command) -> None:
        self._commands.put(command)

    def receive(self) -> Reply:
        """Return the next reply. Raises EOFError if there are no more."""
        reply = self._replies.get()
        if reply is None:
            self._replies.put(None)  # for the next call
            raise EOFError
        return reply

    def close(self) -> None:
        """End the engine after its current step, and free the model. Idempotent."""
        self.send(Stop())
        self._thread.join()

    def restart(self) -> bool:
        """Return False: the owner lives in this process and would not survive a crash either."""
        return False

    def sleep(self) -> None:
        """Nothing: the thread holds the model."""

    def wake(self) -> None:
        """Nothing: it never sleeps."""

    def exit_reason(self) -> str:
        return "the engine was closed"

    def _run(self) -> None:
        try:
            run_engine(QueueChannel(self._commands, self._replies), self._open)
        finally:
            self._replies.put(None)

    def _open(self) -> Model:
        self._model = self._open_model()
        return self._model
