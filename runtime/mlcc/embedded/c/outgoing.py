"""One answer on its way to the host, as events."""

from __future__ import annotations

import json
from typing import Protocol

from mlcc.api.errors import CancelledError, error_body, internal_error
from mlcc.embedded.c.codes import Code, Kind, code_of
from mlcc.embedded.calls import Call
from mlcc.errors import MlccError
from mlcc.service.http.types import error_response


class Events(Protocol):
    """Where events go."""

    def put(self, call: int, kind: Kind, status: int, text: str) -> None:
        """Hand one to the host."""
        ...


class EventReply:
    """A `Reply`: HEAD, BODY as often as it takes, and END once, in any case."""

    def __init__(self, events: Events, number: int) -> None:
        self.call: Call | None = None
        self.ended = False
        self._events, self._number = events, number
        self._why: MlccError | None = None

    def start(self, status: int, headers: str) -> None:
        """The status and the headers."""
        self._events.put(self._number, Kind.HEAD, status, headers)

    def write(self, text: str) -> None:
        """A piece of the body."""
        self._events.put(self._number, Kind.BODY, Code.OK, text)

    def end(self, failure: MlccError | None) -> None:
        """The answer is complete, or will never be. Idempotent."""
        if self.ended:
            return
        self.ended = True
        if failure is None:
            self._events.put(self._number, Kind.END, Code.OK, "")
            return
        why = self._why if self._why and isinstance(failure, CancelledError) else failure
        self._events.put(self._number, Kind.END, code_of(why), json.dumps(error_body(why)))

    def fail(self, message: str) -> None:
        """A bug ended it."""
        self.end(internal_error())

    def stop(self, why: MlccError) -> None:
        """End it before its time, unless it has ended."""
        if self.call is None:
            self.end(why)
        else:
            self._why = self._why or why
            self.call.cancel()

    def answer(self, error: MlccError) -> None:
        """The whole answer is this error."""
        response = error_response(error)
        assert isinstance(response.body, str)
        self.start(response.status, json.dumps(dict(response.headers)))
        self.write(response.body)
        self.end(None)
