"""Output thread: detokenizes, pickles and sends replies, while the engine thread plans the next
step or waits for the device.

Replies keep their order. A slow receiver blocks the engine once `MAX_QUEUED` replies are queued.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from queue import Queue
from threading import Thread

from mlcc.api.errors import internal_error
from mlcc.engine.request import Request
from mlcc.engine.text.output_text import DeferredText
from mlcc.errors import MlccError
from mlcc.worker.messages import Dropped, Events, Reply

MAX_QUEUED = 64


class OutputThread:
    """Owned by the engine thread; `close` ends it."""

    def __init__(self, send: Callable[[Reply], None], texts: DeferredText) -> None:
        self._send_reply, self._detokenizer = send, texts
        self._queue: Queue[tuple[Request, Sequence[int]] | Reply | None] = Queue(MAX_QUEUED)
        self._error: MlccError | None = None
        self._thread = Thread(target=self._run, name="mlcc-output", daemon=True)
        self._thread.start()

    def begin(self, request: Request, token_ids: Sequence[int] = ()) -> None:
        """A request was accepted; its events follow. `token_ids`: output that another engine
        produced."""
        self._queue.put((request, token_ids))

    def send(self, reply: Reply) -> None:
        """Queue a reply."""
        self._queue.put(reply)

    def take_error(self) -> MlccError | None:
        """Return why detokenization failed, once; the receiver has been told. All requests running
        at that time are lost."""
        error, self._error = self._error, None
        return error

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
        try:
            if isinstance(what, tuple):
                self._detokenizer.begin(*what)
                return None
            if isinstance(what, Dropped):
                self._detokenizer.clear()
            return (
                Events(self._detokenizer.add_text(what.events))
                if isinstance(what, Events)
                else what
            )
        except MlccError as error:
            self._error = error
        except Exception:
            traceback.print_exc()
            self._error = internal_error()
        self._detokenizer.clear()
        return Dropped(self._error)
