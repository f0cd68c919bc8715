"""The engine in a thread of this process; `mlcc.worker.process` runs it in another process."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread, current_thread

from mlcc.errors import MlccError
from mlcc.model.model import Model
from mlcc.worker.messages import Command, Failed, Ready, Reply, Stop
from mlcc.worker.worker import OpenModel, QueueChannel, run_engine


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
