"""One connection's protocol object, without sockets: timers, half-closed clients, and requests
whose end two servers could see at different places."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from uvicorn.server import ServerState

from mlcc.server.http.connection import Config, Connection, ConnectionLimits

REQUEST = b"POST / HTTP/1.1\r\nhost: a\r\n"


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unread = 0
        self.closed = self.aborted = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class App:
    """Answers once `go` is set; `bodies` are those of complete requests."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})


def connected(work: Callable[[Connection, Wire, App], Awaitable[None]], **limits: Any) -> None:
    async def run() -> None:
        app, wire = App(), Wire()
        config = Config(app, ConnectionLimits(**limits), http=Connection, log_config=None)
        config.load()
        connection = Connection(config, ServerState(), {}, asyncio.get_running_loop())
        connection.connection_made(wire)
        await work(connection, wire, app)
        connection.connection_lost(None)
        timers = (connection._idle_timer, connection._write_timer, connection._probe_timer)
        assert all(timer.cancelled() for timer in timers if timer is not None)

    asyncio.run(run())


async def until(check: Callable[[], Any]) -> None:
    for _ in range(2000):
        if check():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it does not happen")


def test_a_client_that_reads_again_is_not_cut_off() -> None:
    async def work(connection: Connection, wire: Wire, app: App) -> None:
        connection.pause_writing()
        connection.resume_writing()
        assert connection._write_timer is not None and connection._write_timer.cancelled()
        connection.pause_writing()
        await until(lambda: wire.aborted)

    connected(work, write_s=0.01, head_s=60)


@pytest.mark.parametrize(("unread", "bound"), [(0, "head_s"), (1, "write_s")])
def test_without_a_request_time_is_bounded(unread: int, bound: str) -> None:
    """By `write_s` while the client has not read the last answer."""

    async def work(connection: Connection, wire: Wire, app: App) -> None:
        assert not wire.closed
        connection.data_received(REQUEST + b"content-length: 0\r\n\r\n")
        assert connection._idle_timer is None, "there is a request"
        wire.unread = unread
        app.go.set()
        await until(lambda: wire.aborted)
        assert b"fine" in wire.written

    connected(work, **{"head_s": 60, "write_s": 60, bound: 0.01})


@pytest.mark.parametrize(
    ("head", "taken"),
    [
        (REQUEST + b"transfer-encoding: chunked\r\n\r\n", True),
        (REQUEST.replace(b"/1.1", b"/1.0") + b"transfer-encoding: chunked\r\n\r\n", False),
        (REQUEST + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n", False),
        (REQUEST.replace(b"/1.1", b"/1.0") + b"content-length: 2\r\n\r\nhi", True),
    ],
)
def test_a_body_has_one_length(head: bytes, taken: bool) -> None:
    async def work(connection: Connection, wire: Wire, app: App) -> None:
        app.go.set()
        chunked = b"transfer" in head
        connection.data_received(head + (b"2\r\nhi\r\n0\r\n\r\n" if chunked else b""))
        await until(lambda: wire.written)
        assert wire.written.startswith(b"HTTP/1.1 200" if taken else b"HTTP/1.1 400")
        assert app.bodies == ([b"hi"] if taken else [])
        if not taken:
            head_, _, body = wire.written.partition(b"\r\n\r\n")
            lines = head_.split(b"\r\n")
            assert b"connection: close" in lines and wire.closed
            assert b"content-length: %d" % len(body) in lines

    connected(work)


def test_a_client_that_closed_its_side_is_asked_whether_it_is_there() -> None:
    async def work(connection: Connection, wire: Wire, app: App) -> None:
        assert not connection.eof_received(), "no request: the connection ends"
        connection.data_received(REQUEST + b"content-length: 2\r\n\r\nh")
        await asyncio.sleep(0)
        assert not connection.eof_received(), "half a request"
        connection.data_received(b"i")
        await until(lambda: app.bodies)
        assert connection.eof_received()
        assert wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"
        await until(lambda: wire.written.count(b"100 Continue") == 2)
        app.go.set()
        await until(lambda: b"0\r\n\r\n" in wire.written)
        assert wire.closed and not wire.aborted, "there is no other request to wait for"

    connected(work)


@pytest.mark.parametrize(("most", "taken"), [(1, True), (0, False)])
def test_the_last_connection_is_taken_and_the_next_is_not(most: int, taken: bool) -> None:
    async def work(connection: Connection, wire: Wire, app: App) -> None:
        assert wire.closed is not taken
        assert wire.written.startswith(b"" if taken else b"HTTP/1.1 503 ")

    connected(work, connections=most)
