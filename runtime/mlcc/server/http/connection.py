"""One connection: uvicorn's HTTP/1.1 protocol with an end to everything that a client can draw out.

Not what is asked or answered: how many may be connected, how long a head may take, how long nobody
may read what is written, and whether one who has said all that he will say is still there.

How many connections the system's limit on open files allows. Not known on Windows, which has
none of the kind.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlcc.api.errors import BusyError
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.limits import default
from mlcc.server.asgi import PROBE
from mlcc.service.http.types import error_response

BACKLOG = 128
"""Connections that the system may hold for us; asyncio takes as many in one go."""
_OTHERS = 64
"""For files, pipes and libraries."""


def affordable_connections(connections: int) -> int:
    """As many of so many connections as there are descriptors for. The limit is raised first, as
    far as this process may."""
    try:
        import resource
    except ImportError:
        return connections
    wanted = connections + BACKLOG + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):  # macOS has a lower limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return max(1, min(connections, soft - BACKLOG - _OTHERS))


log = logging.getLogger("mlcc.server")

HEAD_BYTES = 16 << 10
"""A request's line and headers may have this, and as much again if it comes in one piece."""
_FIRST_PROBE_S, _LAST_PROBE_S = 0.05, 2.0
_QUIET_S = 60.0


@dataclass(frozen=True)
class ConnectionLimits:
    """What one server takes from its clients."""

    connections: int = default("max_connections")
    head_s: float = 10.0
    """Longest time from a connection, or its last answer, to the end of a request's head."""
    write_s: float = 30.0
    """Longest time that a client may leave unread what is written to it."""


class Config(uvicorn.Config):
    """uvicorn's, with the limits that its protocol is to keep."""

    def __init__(self, app: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(app, http=Connection, **options)
        self.limits = limits
        self.seldom = LogThrottle(_QUIET_S)


class LogThrottle:
    """Says when to write a line that strangers can cause: once in so many seconds."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._next = 0.0

    def __call__(self) -> bool:
        """Whether it is time."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._pause_s
        return True


class Connection(H11Protocol):
    """Made by uvicorn, once per connection."""

    config: Config

    def __init__(self, config: Config, *arguments: Any, **words: Any) -> None:
        super().__init__(config, *arguments, **words)
        self._limits = config.limits
        self._between: asyncio.TimerHandle | None = None
        """Runs while no request is in hand."""
        self._unread: asyncio.TimerHandle | None = None
        """Runs while the client does not read."""
        self._probing: asyncio.TimerHandle | None = None
        self._half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._turn_away()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._between, self._unread, self._probing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # h11 refuses a head that is too long only while it waits for the rest of it.
        for at in range(0, len(data), HEAD_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[at : at + HEAD_BYTES])
        self._watch()

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client may end its side once it has asked (RFC 9112, 9.6); it still gets its answer.

        So does, as far as can be seen from here, one who left. Writing tells them apart.
        """
        if self._is_between or self.cycle.more_body or self.transport.get_extra_info("ssl_object"):
            return False  # over TLS nobody ends one side only
        self._half_closed = True
        self._probe(_FIRST_PROBE_S)
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed and self._is_between:
            self.transport.close()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """OpenAI's shape also for what is no request, if there is still room for an answer."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write_whole(
                InvalidRequestError(
                    "this is no HTTP request that can be read, or its headers have more than "
                    f"{HEAD_BYTES} bytes; send a shorter and valid one",
                    code="invalid_http",
                )
            )
        self.transport.close()

    @property
    def _is_between(self) -> bool:
        """No request is in hand."""
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        """Without a request in hand, a connection has only so much time: to say what it wants, to
        end a body that was refused, to read the rest of an answer."""
        if not self._is_between and self._between is not None:
            self._between.cancel()
            self._between = None
        elif self._is_between and self._between is None:
            writing = self.transport.get_write_buffer_size() > 0
            seconds = self._limits.write_s if writing else self._limits.head_s
            self._between = self.loop.call_later(seconds, self.transport.abort)

    def _turn_away(self) -> None:
        most = self._limits.connections
        error = BusyError(
            f"{most} connections are open and no more are taken; try again later or allow more "
            "(--max-connections of `mlcc serve`)",
            code="too_many_connections",
        )
        if self.config.seldom():
            log.warning(error.message)
        self._write_whole(error)
        self.transport.close()

    def _write_whole(self, error: MlccError) -> None:
        """An answer without a request: of h11's making, it would need one."""
        answer = error_response(error)
        assert isinstance(answer.body, str)
        body = answer.body.encode()
        lines = [f"HTTP/1.1 {answer.status} ", "connection: close", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)

    def _probe(self, pause_s: float) -> None:
        """Write what means nothing, again and again: to one who is gone it fails."""
        if self.transport.is_closing() or self._is_between:
            return
        if not self.cycle.response_started and self.scope["http_version"] != "1.0":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif self.cycle.response_started and (nothing := self.scope["state"].get(PROBE)):
            self.transport.write(self.conn.send(h11.Data(data=nothing)) or b"")
        longer = min(2 * pause_s, _LAST_PROBE_S)
        self._probing = self.loop.call_later(pause_s, self._probe, longer)


def note_accept_errors(loop: asyncio.AbstractEventLoop, seldom: LogThrottle) -> None:
    """Out of descriptors, asyncio reports each of thousands of failures; one line says the same.

    It sets a retry for each of them, too, and those that come after the server has closed its
    socket fail once more, which is nobody's concern.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context.get("message", "")
        if "_start_serving(" in message and isinstance(context.get("exception"), ValueError):
            return
        if "socket.accept()" not in message:
            loop.default_exception_handler(context)
        elif seldom():
            log.error(
                "no connection can be taken: %s; raise the limit (`ulimit -n`) or lower "
                "--max-connections",
                context.get("exception"),
            )

    loop.set_exception_handler(handle)
