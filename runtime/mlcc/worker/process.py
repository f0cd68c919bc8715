"""The engine's process: starts, stops and restarts it, and reports why it ended. Blocking;
`client.py` is the asyncio side."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from threading import Event, Lock

from mlcc.api.errors import StartError
from mlcc.engine.batch.batch import Capacity
from mlcc.errors import MlccError
from mlcc.util.child_processes import await_first_message, child_process
from mlcc.worker.messages import Command, Failed, Loading, Ready, Reply, Stop
from mlcc.worker.worker import OpenModel, engine_main

FIRST_DELAY_S, MAX_DELAY_S = 1.0, 60.0
HEALTHY_S = 60.0
"""A process that ran for so long did not fail at start-up; the backoff starts over."""


class Backoff:
    """Exponential backoff for restarts: no delay at first, then doubling up to MAX_DELAY_S. Starts
    over after a healthy run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._pause = 0.0

    def began(self) -> None:
        """The process has started."""
        self._began = self._clock()

    def pause(self) -> float:
        """Return the seconds to wait, after the process ended or failed to start."""
        if self._clock() - self._began >= HEALTHY_S:
            self._pause = 0.0
        found = self._pause
        self._pause = min(max(FIRST_DELAY_S, 2 * found), MAX_DELAY_S)
        self._began = self._clock() + found  # the delay does not count as running
        return found


_EXIT_TIMEOUT_S = 3.0


class EngineProcess:
    """A running engine process. `close` may be called from any thread, and leaves no process
    behind.

    Raises what `open_model` raises, or StartError if the process ends while it loads.
    """

    can_restart = True

    def __init__(
        self,
        open_model: OpenModel,
        on_created: Callable[[EngineProcess], object] = lambda process: None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """`on_created` gets the object before the model is loaded, so that another thread can
        `close` it meanwhile. `on_progress` gets the bytes of the model that have been read, and
        all; `open_model` must take `progress` then."""
        self._open_model = open_model
        self._on_progress = on_progress
        self._backoff = Backoff()
        self._connection: Connection
        self._process: SpawnProcess | None = None
        self._starting, self._sending = Lock(), Lock()
        self._closed, self._awake = Event(), Event()
        self._awake.set()
        on_created(self)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def send(self, command: Command) -> None:
        """Send a command. May block while the engine is busy. Raises OSError if the process is
        gone."""
        with self._sending:
            self._connection.send(command)

    def receive(self) -> Reply:
        """Return the next reply. Raises EOFError or OSError if there are no more."""
        reply: Reply = self._connection.recv()
        return reply

    def restart(self) -> bool:
        """Start a new process after the backoff delay, or after `wake`; False = closed meanwhile.
        Raises MlccError if the start fails; the caller may try again.

        Call it in the thread that calls `receive`, while no other thread calls `send`.
        """
        if slept := not self._awake.is_set():
            self._awake.wait()
        if self._closed.wait(0 if slept else self._backoff.pause()):
            return False
        self._terminate()  # in case it closed its pipe but still runs
        try:
            self._start()
        except MlccError:
            if self._closed.is_set():
                return False
            raise
        return not self._closed.is_set()

    def sleep(self) -> None:
        """End the process; none is started before `wake`. Returns when its memory is free."""
        self._awake.clear()
        with self._starting:  # a start in progress has a process now, which ends too
            pass
        self._terminate()

    def wake(self) -> None:
        """Let `restart` start a process again."""
        self._awake.set()

    def close(self) -> None:
        """Ask the process to stop, then kill it. Idempotent."""
        self._closed.set()
        self._awake.set()
        with self._starting:  # a start in progress has finished, or never begins
            pass
        self._terminate()

    def exit_reason(self) -> str:
        """Return why the process ended, for an error message. Call it after the pipe closed."""
        if self._process is None:
            return "the engine process did not start"
        self._process.join(_EXIT_TIMEOUT_S)
        code = self._process.exitcode
        if code is None:
            return "the engine process closed its pipe"
        if code >= 0:
            return f"the engine process ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = "; perhaps the system ran out of memory" if name == "SIGKILL" else ""
        return f"the engine process was ended by {name}{hint}"

    def _start(self) -> None:
        with self._starting:
            if self._closed.is_set():
                raise MlccError("the engine was closed")
            self._connection, child = multiprocessing.Pipe()
            reports = self._on_progress is not None
            process = child_process("mlcc-engine", engine_main, child, self._open_model, reports)
            process.start()
            self._process = process  # only now: a process that has not started cannot be joined
            child.close()
        ready = self._await_ready()
        self.capacity: Capacity = ready.capacity
        self.notes: tuple[str, ...] = ready.notes
        self._backoff.began()

    def _await_ready(self) -> Ready:
        assert self._process is not None
        try:
            await_first_message(self._connection, self._process)
            while isinstance(reply := self.receive(), Loading):
                if self._on_progress is not None:
                    self._on_progress(reply.done, reply.total)
        except (EOFError, OSError):
            why = self.exit_reason()
            raise StartError(f"{why} while it loaded the model; see the lines above") from None
        if isinstance(reply, Ready):
            return reply
        raise reply.error if isinstance(reply, Failed) else MlccError(f"unexpected {reply!r}")

    def _terminate(self) -> None:
        if (process := self._process) is None:
            return
        # Closing the pipe is not enough: a reading thread keeps it open.
        if self._sending.acquire(timeout=_EXIT_TIMEOUT_S):
            with suppress(OSError):
                self._connection.send(Stop())
            self._sending.release()
        for end in (process.terminate, process.kill):
            process.join(_EXIT_TIMEOUT_S)
            if not process.is_alive():
                return
            end()
        process.join()
