"""The engine loop: one thread takes commands between steps and runs the model.

While it plans the next step or waits for the device, two other threads work: `OutputThread`
detokenizes, pickles and sends replies, `GrammarThread` compiles the grammars of new requests.

Does not know HTTP. It ends on Stop, when the device fails, or when the pipe closes because the
parent process is gone.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from queue import Empty, Queue, SimpleQueue
from threading import Thread
from typing import Protocol

from mlcc.engine.events import Finished
from mlcc.engine.request import Request
from mlcc.engine.sampling.grammar import Grammar, Grammars
from mlcc.engine.text.detokenizer import DeferredText
from mlcc.errors import DeviceError, DeviceLostError, MlccError, public_error
from mlcc.model.encoder_driver import driver_of
from mlcc.model.model import Model
from mlcc.util.panics import is_panic
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
    Loading,
    Ready,
    Refused,
    Reply,
    Resume,
    Stop,
    UnloadAdapter,
)
from mlcc.worker.migration import Migrator

MAX_QUEUED = 64
"""Replies that wait for a slow receiver before the engine does."""


class OutputThread:
    """Detokenizes and sends replies, in their order. Owned by the engine thread; `close` ends it.
    A slow receiver blocks the engine once `MAX_QUEUED` replies are queued."""

    def __init__(self, send: Callable[[Reply], None], texts: DeferredText) -> None:
        self._send_reply, self._detokenizer = send, texts
        self._queue: Queue[tuple[Request, Sequence[int]] | Reply | None] = Queue(MAX_QUEUED)
        self._failed: SimpleQueue[str] = SimpleQueue()
        self._thread = Thread(target=self._run, name="mlcc-output", daemon=True)
        self._thread.start()

    def begin(self, request: Request, token_ids: Sequence[int] = ()) -> None:
        """A request was accepted; its events follow. `token_ids`: output that another engine
        produced."""
        self._queue.put((request, token_ids))

    def send(self, reply: Reply) -> None:
        """Queue a reply."""
        self._queue.put(reply)

    def take_failed(self) -> Iterator[str]:
        """Yield the requests whose text cannot be made, once; the receiver has their last event
        already."""
        with suppress(Empty):
            while True:
                yield self._failed.get_nowait()

    def close(self) -> None:
        """Send what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        connected = True
        while (what := self._queue.get()) is not None:
            try:
                reply = self._reply(what)
                if reply is not None and connected:
                    self._send_reply(reply)
            except OSError:
                connected = False  # the receiver is gone; the engine thread notices by itself

    def _reply(self, what: tuple[Request, Sequence[int]] | Reply) -> Reply | None:
        """Return the message to send, with text filled into events."""
        if isinstance(what, tuple):
            return self._begin(*what)
        if isinstance(what, Dropped):
            self._detokenizer.clear()
        if not isinstance(what, Events):
            return what
        events = self._detokenizer.add_text(what.events)
        for event in events:
            if isinstance(event, Finished) and event.error is not None:
                self._report(event)
        return Events(events)

    def _begin(self, request: Request, token_ids: Sequence[int]) -> Reply | None:
        try:
            self._detokenizer.begin(request, token_ids)
        except Exception as error:
            end = self._detokenizer.fail(request.id, error)
            self._report(end)
            return Events([end])
        return None

    def _report(self, end: Finished) -> None:
        """A request ended with an error: here, if the engine does not know it."""
        self._failed.put(end.request_id)
        if end.error is not None and end.error.__cause__ is not None:
            traceback.print_exception(end.error.__cause__)
            end.error.__cause__ = None


class GrammarThread:
    """Compiles grammars. Owned by the engine thread; the thread starts with the first grammar."""

    def __init__(self, grammars: Grammars | None) -> None:
        self._grammars = grammars
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._pending: dict[str, tuple[Request, Future[Grammar]]] = {}

    @property
    def available(self) -> bool:
        """Whether there is a grammar backend."""
        return self._grammars is not None

    @property
    def busy(self) -> bool:
        """Whether grammars are being compiled or wait in `completed`."""
        return bool(self._pending)

    def open(self, request: Request) -> None:
        """Start compiling the grammar of a request."""
        assert self._grammars is not None and request.structure is not None
        future = self._thread.submit(self._grammars.open, request.structure)
        self._pending[request.id] = request, future

    def completed(self) -> Iterator[tuple[Request, Grammar | MlccError]]:
        """Yield the requests whose grammar is ready or was refused."""
        for request, future in [*self._pending.values()]:
            if future.done():
                del self._pending[request.id]
                yield request, _outcome(future)

    def cancel(self, request_id: str) -> None:
        """Drop a request. A compilation that has started runs to its end."""
        if entry := self._pending.pop(request_id, None):
            entry[1].cancel()

    def close(self) -> None:
        """Stop compiling."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _outcome(future: Future[Grammar]) -> Grammar | MlccError:
    try:
        return future.result()
    except BaseException as error:
        return _refusal(error)


def _refusal(error: BaseException) -> MlccError:
    """The error that a client gets for a request that fails before its first step. Raises `error`
    if the engine cannot continue."""
    if isinstance(error, DeviceLostError) or not (isinstance(error, Exception) or is_panic(error)):
        raise error
    if not isinstance(error, MlccError):
        traceback.print_exception(error)
    return public_error(error)


OpenModel = Callable[..., Model]
"""Opens the model in the engine's process; must be picklable. `progress`
(`mlcc.loader.Progress`) is called with what has been read."""


PROGRESS_S = 0.1
"""Time between two reports of loading."""


_GRAMMAR_POLL_S = 0.002
"""Time to wait for a command while a grammar compiles and there is nothing else to do."""


class Channel(Protocol):
    """The engine's end of the connection: a pipe, or queues in the same process."""

    def poll(self, timeout: float | None = 0.0, /) -> bool: ...

    def recv(self) -> Command: ...

    def send(self, reply: Reply, /) -> None: ...


class QueueChannel:
    """The channel of an engine in a thread: a queue each way."""

    def __init__(self, commands: SimpleQueue[Command], replies: SimpleQueue[Reply | None]) -> None:
        self._commands, self._replies = commands, replies
        self._next: Command | None = None

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Return whether a command arrives within `timeout` seconds; None = wait for one."""
        if self._next is None:
            with suppress(Empty):
                self._next = self._commands.get(timeout != 0, timeout)
        return self._next is not None

    def recv(self) -> Command:
        command, self._next = self._next or self._commands.get(), None
        return command

    def send(self, reply: Reply) -> None:
        self._replies.put(reply)


class LoadingReporter:
    """Sends the progress of loading, at most every PROGRESS_S, and the end."""

    def __init__(self, send: Callable[[Reply], None]) -> None:
        self._send_reply = send
        self._sent_at = float("-inf")

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - self._sent_at >= PROGRESS_S:
            self._sent_at = now
            self._send_reply(Loading(done, total))


def engine_main(connection: Connection, open_model: OpenModel, reports: bool = False) -> None:
    """Entry point of the engine process. Ctrl-C is handled by the parent. reports: send the
    progress of loading."""
    if reports:
        open_model = partial(open_model, progress=LoadingReporter(connection.send))
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
                self._cancel_failed()
                if self._driver.engine.has_work and not self._stopped:
                    self._step()
        finally:
            self._grammars.close()
            self._output.close()

    def _cancel_failed(self) -> None:
        """Cancel the requests whose text cannot be made."""
        for request_id in self._output.take_failed():
            self._output.send(Events(self._driver.engine.cancel(request_id)))

    def _step(self) -> None:
        """Run one step. If it fails without naming a request, the running ones are lost; if the
        device is lost, so is the engine."""
        try:
            events = self._driver.step()
            if events:
                self._output.send(Events(events))
                if self._migrator.migrating:
                    for reply in self._migrator.exports(events):
                        self._output.send(reply)
        except BaseException as error:
            self._output.send(Dropped(_refusal(error)))

    def _take_commands(self) -> None:
        """Handle all queued commands; if there is no work, wait for one."""
        while not self._stopped and self._connection.poll(self._poll_timeout()):
            self._handle(self._connection.recv())

    def _poll_timeout(self) -> float | None:
        """Seconds to wait for a command; None = no limit."""
        if self._driver.engine.has_work:
            return 0
        return _GRAMMAR_POLL_S if self._grammars.busy else None

    def _handle(self, command: Command) -> None:
        engine = self._driver.engine
        if isinstance(command, Add):
            if command.migrate:
                self._migrator.migrating.add(command.request.id)
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
        try:
            if isinstance(grammar, MlccError):
                raise grammar
            self._driver.engine.add(request, grammar)
        except BaseException as error:
            self._output.send(Refused(request.id, _refusal(error)))
        else:
            self._output.begin(request)
            self._output.send(Accepted(request.id))

    def _resume(self, command: Resume) -> None:
        try:
            events, found = self._migrator.resume(command.request_id, command.data)
        except BaseException as error:
            self._output.send(Refused(command.request_id, _refusal(error)))
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
        except BaseException as error:
            return AdapterDone(command.name, _refusal(error))
        return AdapterDone(command.name)
