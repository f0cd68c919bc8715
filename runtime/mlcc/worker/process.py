"""Starts and stops the engine's process, and says why it ended. Blocking; see `client.py`."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Lock

from mlcc.engine.batch import Capacity
from mlcc.errors import DeviceError, MlccError
from mlcc.worker.messages import Command, Failed, Ready, Reply, Stop
from mlcc.worker.worker import OpenModel, engine_main

_GRACE_S = 3.0


class EngineProcess:
    """A running engine. `close` leaves no process behind."""

    def __init__(self, open_model: OpenModel) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection: Connection
        self._connection, child = context.Pipe()
        self._sending = Lock()
        self._process = context.Process(
            target=engine_main, args=(child, open_model), name="mlcc-engine", daemon=True
        )
        self._process.start()
        child.close()
        try:
            ready = self._await_ready()
        except BaseException:
            self.close()
            raise
        self.capacity: Capacity = ready.capacity
        self.notes: tuple[str, ...] = ready.notes

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def send(self, command: Command) -> None:
        """May block while the engine is busy. Raises OSError if it is gone."""
        with self._sending:
            self._connection.send(command)

    def receive(self) -> Reply:
        """The next message. Raises EOFError or OSError if there will be none."""
        reply: Reply = self._connection.recv()
        return reply

    def close(self) -> None:
        """Ask it to stop, then make it. Idempotent."""
        # Not by closing the pipe: a thread that is reading it would keep it open.
        if self._sending.acquire(timeout=_GRACE_S):
            with suppress(OSError):
                self._connection.send(Stop())
            self._sending.release()
        for end in (self._process.terminate, self._process.kill):
            self._process.join(_GRACE_S)
            if not self._process.is_alive():
                return
            end()
        self._process.join()

    def why_it_ended(self) -> str:
        """In words, once the pipe is closed."""
        self._process.join(_GRACE_S)
        code = self._process.exitcode
        if code is None:
            return "the engine process closed its pipe"
        if code >= 0:
            return f"the engine process ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = "; perhaps the system ran out of memory" if name == "SIGKILL" else ""
        return f"the engine process was ended by {name}{hint}"

    def _await_ready(self) -> Ready:
        try:
            reply = self.receive()
        except (EOFError, OSError):
            why = self.why_it_ended()
            raise DeviceError(f"{why} while it loaded the model; see the lines above") from None
        if isinstance(reply, Ready):
            return reply
        raise reply.error if isinstance(reply, Failed) else MlccError(f"unexpected {reply!r}")
