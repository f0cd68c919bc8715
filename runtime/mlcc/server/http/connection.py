"""HTTP/1.1 connections: uvicorn's protocol with limits on everything that a client can delay.

Limits the number of connections (also by the system's limit on open files), the time for a
request's headers, and the time that a response may stay unread, and detects clients that have
disconnected after half-closing.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from mlcc.api.errors import BusyError
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.limits import default
from mlcc.server.asgi import PROBE, WRITER
from mlcc.service.http.types import error_response

BACKLOG = 128
"""Pending connections in the listen queue; asyncio accepts as many in one go."""
REFUSED = 32
"""TLS connections beyond the limit that get a handshake, so that they can be sent an error."""
_OTHERS = 64 + REFUSED
"""File descriptors reserved for files, pipes, libraries and refused connections."""


def affordable_connections(connections: int) -> int:
    """Return the number of connections that the file descriptor limit allows, after raising the
    limit as far as possible. Windows has no such limit."""
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
"""Most bytes of a request's line and headers; twice as many if they arrive in one piece."""
_FIRST_PROBE_S, _LAST_PROBE_S = 0.05, 2.0
_QUIET_S = 60.0


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on the connections of a server."""

    connections: int = default("max_connections")
    head_s: float = 10.0
    """Seconds from accepting the connection, or its last response, to the end of a request's
    headers."""
    write_s: float = 30.0
    """Seconds that a client may leave written data unread."""


class Config(uvicorn.Config):
    """uvicorn's configuration with the connection limits."""

    def __init__(
        self,
        app: Any,
        limits: ConnectionLimits,
        tls: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        """`http` among the options is `Connection` or, with `tls`, `TlsHandshake`."""
        super().__init__(app, **options)
        self.limits = limits
        self.tls = tls
        self.log_throttle = LogThrottle(_QUIET_S)


class LogThrottle:
    """Limits log lines that strangers can cause to one per interval."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._next = 0.0

    def __call__(self) -> bool:
        """Return whether a line may be logged now."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._pause_s
        return True


class StrictH11(h11.Connection):
    """h11's connection that refuses requests whose end two servers could see at different places
    (request smuggling; RFC 9112, 6.1): Transfer-Encoding beside Content-Length, or in HTTP/1.0.

    It frames the chunks of a streamed body itself: h11 takes 6 us of CPU for each.
    """

    _chunked = False
    """Whether a chunked body is being sent."""

    def send(self, event: Any) -> Any:
        """The bytes to write for an event."""
        if self._chunked and type(event) is h11.Data:
            data = event.data
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        made = super().send(event)
        self._chunked = type(event) is h11.Response and _CHUNKED in (made or b"").lower()
        return made

    def next_event(self) -> Any:
        """Return the next event. Raises h11.RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = [name for name, _ in event.headers]
            if b"transfer-encoding" in names and (
                b"content-length" in names or event.http_version < b"1.1"
            ):
                raise h11.RemoteProtocolError("the body's length is ambiguous")
        return event


_CHUNKED = b"\r\ntransfer-encoding: chunked\r\n"


class ConnectionWriter:
    """A `BodyWriter` of one response."""

    def __init__(self, connection: Connection) -> None:
        self.sent = 0
        self._connection: Connection | None = connection
        self._cycle: RequestResponseCycle | None = connection.cycle
        self._flow, self._transport = connection.flow, connection.transport

    def ready(self) -> bool:
        """Whether the response has begun and the client reads."""
        if (cycle := self._cycle) is None:
            return False
        begun = cycle.response_started and not cycle.response_complete
        there = not cycle.disconnected and not self._transport.is_closing()
        return begun and there and not self._flow.write_paused

    def write(self, data: bytes) -> None:
        """Write a piece of the body."""
        assert self._connection is not None
        self.sent += len(data)
        self._transport.write(self._connection.conn.send(h11.Data(data=data)) or b"")

    def end(self) -> None:
        """Let go of the connection, which has this writer: else both would wait in memory for a
        full garbage collection."""
        self._connection = self._cycle = None


class Connection(H11Protocol):
    """uvicorn's protocol object, one per connection."""

    config: Config

    def __init__(self, config: Config, *arguments: Any, **words: Any) -> None:
        super().__init__(config, *arguments, **words)
        self.conn = StrictH11(h11.SERVER)
        self._limits = config.limits
        self._idle_timer: asyncio.TimerHandle | None = None
        """Runs while there is no request."""
        self._write_timer: asyncio.TimerHandle | None = None
        """Runs while the client does not read."""
        self._probe_timer: asyncio.TimerHandle | None = None
        self._half_closed = False
        self._socket: asyncio.Transport | None = None
        """The connection below TLS; None = there is no TLS."""

    def take_over(self, transport: asyncio.Transport, idle_timer: asyncio.TimerHandle) -> None:
        """Continue a connection after its TLS handshake, before `connection_made`: its transport
        below TLS, and the timer that has run since it was accepted."""
        self._socket, self._idle_timer = transport, idle_timer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._reject()
        self._update_idle_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._idle_timer, self._write_timer, self._probe_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self._end_writer()
        self.cycle = None  # type: ignore[assignment]  # which has this protocol
        untie(self._socket or self.transport)

    def data_received(self, data: bytes) -> None:
        # h11 checks the length of the headers only while they are incomplete.
        for at in range(0, len(data), HEAD_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[at : at + HEAD_BYTES])
        self._update_idle_timer()

    def handle_events(self) -> None:
        super().handle_events()
        if not self._is_idle and WRITER not in self.scope["state"]:
            self.scope["state"][WRITER] = ConnectionWriter(self)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open for the response: a client may close its side after the request
        (RFC 9112, 9.6).

        A client that has gone away looks the same; writing to it tells the difference.
        """
        if self._is_idle or self.cycle.more_body or self.transport.get_extra_info("ssl_object"):
            return False  # TLS has no half-close
        self._half_closed = True
        self._probe(_FIRST_PROBE_S)
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._limits.write_s, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def on_response_complete(self) -> None:
        self._end_writer()
        super().on_response_complete()
        if self._half_closed and self._is_idle:
            self.transport.close()
        self._update_idle_timer()

    def send_400_response(self, msg: str) -> None:
        """Send an API error for a malformed request, if a response can still be sent."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write_error(
                InvalidRequestError(
                    "this is no HTTP request that can be read, its headers have more than "
                    f"{HEAD_BYTES} bytes, or it has Transfer-Encoding beside Content-Length or in "
                    "HTTP/1.0; send a shorter and valid one",
                    code="invalid_http",
                )
            )
        self.transport.close()

    def _end_writer(self) -> None:
        writer = self.scope and self.scope["state"].get(WRITER)
        if writer is not None:
            writer.end()

    @property
    def _is_idle(self) -> bool:
        """Whether there is no request."""
        return self.cycle is None or self.cycle.response_complete

    def _update_idle_timer(self) -> None:
        """Bound the time without a request: for sending the next one, finishing a refused body, or
        reading the rest of a response."""
        if not self._is_idle and self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        elif self._is_idle and self._idle_timer is None:
            writing = (self._socket or self.transport).get_write_buffer_size() > 0
            seconds = self._limits.write_s if writing else self._limits.head_s
            self._idle_timer = self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        """Close at once. Below TLS, which would wait for the client's half of its shutdown."""
        (self._socket or self.transport).abort()

    def _reject(self) -> None:
        most = self._limits.connections
        error = BusyError(
            f"{most} connections are open and no more are taken; try again later or allow more "
            "(--max-connections of `mlcc serve`)",
            code="too_many_connections",
        )
        if self.config.log_throttle():
            log.warning(error.message)
        self._write_error(error)
        self.transport.close()

    def _write_error(self, error: MlccError) -> None:
        """Send an error without a request; h11 would require one."""
        answer = error_response(error)
        assert isinstance(answer.body, str)
        body = answer.body.encode()
        lines = [f"HTTP/1.1 {answer.status} ", "connection: close", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)

    def _probe(self, pause_s: float) -> None:
        """Repeatedly write bytes without meaning; for a client that is gone, this fails."""
        if self.transport.is_closing() or self._is_idle:
            return
        if not self.cycle.response_started and self.scope["http_version"] != "1.0":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif self.cycle.response_started and (nothing := self.scope["state"].get(PROBE)):
            self.transport.write(self.conn.send(h11.Data(data=nothing)) or b"")
        longer = min(2 * pause_s, _LAST_PROBE_S)
        self._probe_timer = self.loop.call_later(pause_s, self._probe, longer)


def untie(transport: asyncio.BaseTransport) -> None:
    """Let go of a method that asyncio's transport of a closed socket has of itself: the only cycle
    that a connection leaves behind, so that no full garbage collection need find it."""
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None


def note_accept_errors(loop: asyncio.AbstractEventLoop, log_throttle: LogThrottle) -> None:
    """Log one line instead of asyncio's thousands when file descriptors run out.

    asyncio also schedules a retry for each failure; retries after the server has closed its socket
    fail again, and are ignored.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context.get("message", "")
        if "_start_serving(" in message and isinstance(context.get("exception"), ValueError):
            return
        if "socket.accept()" not in message:
            loop.default_exception_handler(context)
        elif log_throttle():
            log.error(
                "no connection can be taken: %s; raise the limit (`ulimit -n`) or lower "
                "--max-connections",
                context.get("exception"),
            )

    loop.set_exception_handler(handle)
