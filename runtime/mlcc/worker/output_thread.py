"""What an engine says, said by a thread beside the engine's: there the text of answers is made and
replies are pickled and sent, while the engine's thread plans the next step or waits for the device.

Replies go out in the order in which they came. A listener that is slow holds up the engine once
`MAX_QUEUED` replies wait.
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
    """Belongs to the engine's thread; `close` ends the one beside it."""

    def __init__(self, send: Callable[[Reply], None], texts: DeferredText) -> None:
        self._send_reply, self._detokenizer = send, texts
        self._queue: Queue[tuple[Request, Sequence[int]] | Reply | None] = Queue(MAX_QUEUED)
        self._error: MlccError | None = None
        self._thread = Thread(target=self._run, name="teller", daemon=True)
        self._thread.start()

    def begin(self, request: Request, token_ids: Sequence[int] = ()) -> None:
        """The engine took it: its events follow. said: of its answer, elsewhere."""
        self._queue.put((request, token_ids))

    def send(self, reply: Reply) -> None:
        """Soon."""
        self._queue.put(reply)

    def take_error(self) -> MlccError | None:
        """Why the text of live answers cannot be made, if so: told once, and the listener has been
        told already. No live request of that time can be answered."""
        error, self._error = self._error, None
        return error

    def close(self) -> None:
        """Say what waits, and no more."""
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
                connected = False  # nobody is there: the engine's thread finds out by itself

    def _reply(self, what: tuple[Request, Sequence[int]] | Reply) -> Reply | None:
        """What is sent: of events without their text, with it."""
        try:
            if isinstance(what, tuple):
                self._detokenizer.begin(*what)
                return None
            if isinstance(what, Dropped):
                self._detokenizer.clear()
            return Events(self._detokenizer.read(what.events)) if isinstance(what, Events) else what
        except MlccError as error:
            self._error = error
        except Exception:
            traceback.print_exc()
            self._error = internal_error()
        self._detokenizer.clear()
        return Dropped(self._error)
