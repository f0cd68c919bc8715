"""The engine loop: one thread takes commands between steps and runs the model.

Does not know HTTP. It ends on Stop, when the device fails, or when the pipe closes because the
parent process is gone.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Protocol

from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar
from mlcc.engine.text.output_text import DeferredText
from mlcc.errors import DeviceError, DeviceLostError, MlccError
from mlcc.model.encoder_driver import driver_of
from mlcc.model.model import Model
from mlcc.worker.grammar_thread import GrammarThread
from mlcc.worker.messages import (
    Accepted,
    AdapterDone,
    Add,
    Cancel,
    Command,
    Dropped,
    EngineSnapshot,
    Events,
    Failed,
    GetSnapshot,
    GetStats,
    LoadAdapter,
    Ready,
    Refused,
    Reply,
    Resume,
    Stop,
    UnloadAdapter,
)
from mlcc.worker.migration import Migrator
from mlcc.worker.output_thread import OutputThread

OpenModel = Callable[[], Model]
"""Opens the model in the engine's process; must be picklable."""


_GRAMMAR_POLL_S = 0.002
"""Time to wait for a command while a grammar compiles and there is nothing else to do."""


class Channel(Protocol):
    """The engine's end of the connection: a pipe, or queues in the same process."""

    def poll(self, timeout: float | None = 0.0, /) -> bool: ...

    def recv(self) -> Command: ...

    def send(self, reply: Reply, /) -> None: ...


def engine_main(connection: Connection, open_model: OpenModel) -> None:
    """Entry point of the engine process. Ctrl-C is handled by the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_engine(connection, open_model)


def run_engine(connection: Channel, open_model: OpenModel) -> None:
    """Open the model, run the engine loop until it ends, and close the model. Blocks."""
    try:
        model = open_model()
        try:
            connection.send(Ready(model.capacity, model.text.notes))
            Worker(connection, model).run()
        finally:
            model.close()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except MlccError as error:
        connection.send(Failed(error))
    except Exception as error:
        traceback.print_exc()
        text = f"the engine failed ({type(error).__name__}: {error}); this is a bug, see the log"
        connection.send(Failed(DeviceError(text, code="engine_failed")))


class Worker:
    """The engine loop of one model."""

    def __init__(self, connection: Channel, model: Model) -> None:
        self._connection = connection
        self._driver = driver_of(model, defer_text=True)
        self._output = OutputThread(connection.send, DeferredText(model.text.tokenizer))
        self._grammars = GrammarThread(model.text.grammars)
        self._migrator = Migrator(model, self._driver)
        self._stopped = False

    def run(self) -> None:
        """Step while there is work; wait for commands while there is none."""
        try:
            while not self._stopped:
                self._take_commands()
                for request, grammar in self._grammars.completed():
                    self._add(request, grammar)
                self._check_output_thread()
                if self._driver.has_work and not self._stopped:
                    self._step()
        finally:
            self._grammars.close()
            self._output.close()

    def _check_output_thread(self) -> None:
        """Drop the running requests if their text cannot be made."""
        if (error := self._output.take_error()) is not None:
            self._driver.forget()
            self._output.send(Dropped(error))  # also for requests that were added meanwhile

    def _step(self) -> None:
        """Run one step. If it fails, the running requests are lost; if the device is lost, so is
        the engine."""
        try:
            events = self._driver.step()
            if events:
                self._output.send(Events(events))
                for reply in self._migrator.exports(events):
                    self._output.send(reply)
        except DeviceLostError:
            raise
        except MlccError as error:
            self._output.send(Dropped(error))

    def _take_commands(self) -> None:
        """Handle all queued commands; if there is no work, wait for one."""
        while not self._stopped and self._connection.poll(self._poll_timeout()):
            self._handle(self._connection.recv())

    def _poll_timeout(self) -> float | None:
        """Seconds to wait for a command; None = no limit."""
        if self._driver.has_work:
            return 0
        return _GRAMMAR_POLL_S if self._grammars.busy else None

    def _handle(self, command: Command) -> None:
        engine = self._driver.engine
        if isinstance(command, Add):
            if command.migrate:
                self._migrator.migrate(command.request.id)
            if command.request.structure is not None and self._grammars.available:
                self._grammars.open(command.request)
            else:
                self._add(command.request)
        elif isinstance(command, Resume):
            self._resume(command)
        elif isinstance(command, Cancel):
            self._grammars.cancel(command.request_id)
            self._output.send(Events(engine.cancel(command.request_id)))
        elif isinstance(command, (LoadAdapter, UnloadAdapter)):
            self._output.send(self._change_adapter(command))
        elif isinstance(command, GetStats):
            self._output.send(engine.stats())
        elif isinstance(command, GetSnapshot):
            self._output.send(EngineSnapshot(engine.stats(), engine.prefix_digest()))
        elif isinstance(command, Stop):
            self._stopped = True

    def _add(self, request: Request, grammar: Grammar | MlccError | None = None) -> None:
        self._check_output_thread()  # before this request is added
        try:
            if isinstance(grammar, MlccError):
                raise grammar
            self._driver.engine.add(request, grammar)
        except MlccError as error:
            self._output.send(Refused(request.id, error))
        else:
            self._output.begin(request)
            self._output.send(Accepted(request.id))

    def _resume(self, command: Resume) -> None:
        self._check_output_thread()
        try:
            events, found = self._migrator.resume(command.request_id, command.data)
        except DeviceLostError:
            raise
        except MlccError as error:
            self._output.send(Refused(command.request_id, error))
        else:
            self._output.send(Events(events))
            self._output.begin(found.request, found.output_ids)
            self._output.send(Accepted(command.request_id))

    def _change_adapter(self, command: LoadAdapter | UnloadAdapter) -> Reply:
        try:
            if isinstance(command, LoadAdapter):
                self._driver.load_adapter(command.name, command.folder, command.in_place)
            else:
                self._driver.unload_adapter(command.name)
        except DeviceLostError:
            raise
        except MlccError as error:
            return AdapterDone(command.name, error)
        return AdapterDone(command.name)
