"""Slow clients: each may use its share of connections, and other clients do not wait for them."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from urllib.parse import urlsplit

import httpx
import pytest

from mlcc.api.errors import BusyError
from mlcc.server.asgi import BodyMemory, headers_of
from mlcc.server.serve import bind
from tests.runtime.server.helpers.server_process import RunningServer, eventually, idle, running

HELLO = [{"role": "user", "content": "hi"}]
MANY = 60


@contextmanager
def connected(server: RunningServer, buffer: int | None = None) -> Iterator[socket.socket]:
    url = urlsplit(server.url)
    with closing(socket.socket()) as made:
        if buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.settimeout(60)
        made.connect((url.hostname, url.port))
        yield made


def asking(
    path: str, body: object, declared: int | None = None, version: str = "1.1", key: str = "none"
) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (
        f"POST {path} HTTP/{version}\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"x-api-key: {key}\r\ncontent-length: {declared or len(content)}\r\n\r\n"
    ).encode() + content


def all_of(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def health(server: RunningServer) -> int:
    try:
        return httpx.get(f"{server.url}/health", timeout=60).status_code
    except httpx.TransportError:
        return 0


@pytest.fixture(scope="module")
def hasty() -> Iterator[RunningServer]:
    """A server with short timeouts and few connections."""
    options = ("--head-s", "0.3", "--body-s", "0.3", "--connections", "6", "--delay", "0.01")
    with running(*options) as server:
        yield server


def test_answers_are_sent_without_delay() -> None:
    async def accepted() -> int:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[socket.socket] = loop.create_future()

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                found.set_result(transport.get_extra_info("socket"))

        with closing(bind("127.0.0.1", 0)) as listener:
            server = await loop.create_server(Protocol, sock=listener)
            _, writer = await asyncio.open_connection(*listener.getsockname())
            option = (await found).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            server.close()
            return option

    assert asyncio.run(accepted()) != 0


def test_headers_are_looked_through_once() -> None:
    class Lines(list[tuple[bytes, bytes]]):
        rounds = 0

        def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
            self.rounds += 1
            return super().__iter__()

    lines = Lines((b"x-%d" % i, b"1") for i in range(100))
    lines.append((b"x-1", b"2"))
    assert headers_of({"headers": lines}) == {f"x-{i}": "1" for i in range(100)}
    assert lines.rounds == 1


def test_more_header_lines_than_anybody_needs(server: RunningServer) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 20_000)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"invalid_http" in answer


@pytest.mark.parametrize(
    ("version", "lengths"),
    [
        (b"1.1", (b"content-length: 5", b"transfer-encoding: chunked")),
        (b"1.1", (b"Transfer-Encoding: chunked", b"Content-Length: 44")),
        (b"1.0", (b"transfer-encoding: chunked",)),
    ],
)
def test_a_body_with_two_lengths(
    server: RunningServer, version: bytes, lengths: tuple[bytes, ...]
) -> None:
    """The second request is in the body by the one length, and after it by the other."""
    second = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with connected(server) as connection:
        head = [b"POST /v1/completions HTTP/" + version, b"host: localhost", *lengths, b"", b""]
        connection.sendall(b"\r\n".join(head) + b"0\r\n\r\n" + second)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"Content-Length" in answer
    assert b"connection: close" in answer and answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("start", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nhost: x\r\n"])
def test_a_head_that_never_ends(hasty: RunningServer, start: bytes) -> None:
    with connected(hasty) as connection:
        connection.sendall(start)
        assert gone(connection)


def test_a_second_head_that_never_ends(hasty: RunningServer) -> None:
    with connected(hasty) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /hea")
        assert gone(connection)


def test_a_refused_body_that_never_ends(hasty: RunningServer) -> None:
    with connected(hasty) as connection:
        connection.sendall(asking("/v1/nothing", b"{", declared=1000))
        assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")
        assert gone(connection)


def gone(connection: socket.socket) -> bool:
    """Whether the server closes, in this order or that. Raises TimeoutError if it does not."""
    with suppress(ConnectionResetError):
        all_of(connection)
    return True


def test_a_body_that_never_ends(hasty: RunningServer) -> None:
    with connected(hasty) as connection:
        connection.sendall(asking("/v1/completions", b"{", declared=1000))
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 504 ") and b"the body did not come" in answer


def test_a_body_that_comes_too_slowly() -> None:
    with running("--body-window-s", "0.3") as server, connected(server) as connection:
        connection.sendall(asking("/v1/completions", b"{", declared=1000))
        connection.settimeout(0.05)
        answer = b""
        while not answer.endswith(b"}"):  # or the body has a minute
            with suppress(TimeoutError):
                answer += connection.recv(65536)
            with suppress(OSError):
                connection.sendall(b" ")
    assert answer.startswith(b"HTTP/1.1 504 ") and b"less than 1024 bytes a second" in answer


def test_unfinished_bodies_of_one_key_leave_room_for_another() -> None:
    """All bodies together have 400,000 bytes."""
    keys = ("--api-key", "greedy", "--api-key", "other")
    with running("--bodies", "4", "--body-window-s", "60", *keys) as server, ExitStack() as stack:
        refused, held = 0, []
        for _ in range(4):
            connection = stack.enter_context(connected(server))
            part = asking("/v1/completions", b" " * 90_000, declared=99_000, key="greedy")
            connection.sendall(part)
            connection.settimeout(2)
            try:
                refused += connection.recv(20).startswith(b"HTTP/1.1 503 ")
            except TimeoutError:
                held += [connection]
        assert (len(held), refused) == (2, 2)
        body = json.dumps({"prompt": "x", "max_tokens": 2}).encode() + b" " * 80_000
        with connected(server) as connection:
            connection.sendall(asking("/v1/completions", body, key="other"))
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        for connection in held:  # they were kept
            connection.sendall(b" " * 9_000)
            assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_the_share_of_a_tenant() -> None:
    memory = BodyMemory(100)
    memory.take(50, "a")
    with pytest.raises(BusyError, match="key 'a'"):
        memory.take(1, "a")
    memory.take(25, "b")
    with pytest.raises(BusyError, match="key 'c'"):
        memory.take(13, "c")
    memory.take(12, "c")
    memory.give_back(50, "a")
    memory.take(20, "c")
    alone = BodyMemory(100)
    alone.take(100, "")
    with pytest.raises(BusyError, match="100 are the most"):
        alone.take(1, "a")


def test_one_connection_too_many(hasty: RunningServer) -> None:
    """The open connections are active, or the server would close them."""
    long = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}
    with ExitStack() as stack:
        for _ in range(6):
            connection = stack.enter_context(connected(hasty))
            connection.sendall(asking("/v1/completions", long))
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        answer = all_of(stack.enter_context(connected(hasty)))
        assert answer.startswith(b"HTTP/1.1 503 ") and b"--max-connections" in answer
    assert eventually(lambda: health(hasty) == 200)


@pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")
def test_out_of_descriptors_is_one_line_and_passes() -> None:
    import resource
    from pathlib import Path

    with running() as server:
        process = server.process
        used = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 4, used + 4))
        with ExitStack() as stack:
            for _ in range(MANY):
                stack.enter_context(connected(server))
            with pytest.raises(httpx.TimeoutException):
                httpx.get(f"{server.url}/health", timeout=2.5)  # it has tried again by then
        assert eventually(lambda: health(server) == 200)
        process.terminate()
        assert process.stderr
        stderr = process.stderr.read()
    assert stderr.count("no connection can be taken") == 1 and len(stderr) < 500


def test_unfinished_bodies_have_a_bound_together() -> None:
    with running("--bodies", "2") as server, ExitStack() as stack:  # of 100,000 bytes each
        for _ in range(2):
            connection = stack.enter_context(connected(server))
            connection.sendall(asking("/v1/completions", b" " * 98_000, declared=99_000))
        body = json.dumps({"prompt": "x", "max_tokens": 2}).encode()
        big, kind = body + b" " * 50_000, {"content-type": "application/json"}

        def status(content: bytes) -> int:
            url = f"{server.url}/v1/completions"
            return httpx.post(url, content=content, headers=kind, timeout=60).status_code

        assert eventually(lambda: status(big) == 503)
        assert status(body) == 200
        stack.close()
        assert eventually(lambda: status(big) == 200)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_half_closed_connection_still_gets_the_answer(
    hasty: RunningServer, stream: bool, version: str
) -> None:
    body = {"prompt": "x", "max_tokens": 60, "ignore_eos": True, "stream": stream}
    with connected(hasty) as connection:
        connection.sendall(asking("/v1/completions", body, version=version))
        connection.shutdown(socket.SHUT_WR)
        answer = all_of(connection)
    assert b"HTTP/1.1 200 " in answer and b'"finish_reason":"length"' in answer
    assert (b"100 Continue" in answer) <= (version == "1.1")


def test_a_queued_stream_whose_client_left_makes_room() -> None:
    """Nothing is written to it until its turn, so nothing that is written says that it is gone."""
    waiting = {"prompt": "x", "max_tokens": 4, "stream": True}
    long = {"prompt": ["x"] * 4, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with running("--delay", "0.05", "--max-queue", "1") as server, ExitStack() as stack:
        first = stack.enter_context(connected(server))
        first.sendall(asking("/v1/completions", long))
        assert b"200" in first.recv(20)
        with connected(server) as second:
            second.sendall(asking("/v1/completions", waiting))
            assert b"200" in second.recv(20)
        url = f"{server.url}/v1/completions"

        def is_taken() -> bool:
            with httpx.stream("POST", url, json=waiting, timeout=60) as answer:
                return answer.status_code == 200

        assert eventually(is_taken)
        assert httpx.get(f"{server.url}/health").json()["engine"]["running"] == 4


@pytest.mark.parametrize("bound", [("--timeout", "4", "--delay", "0.02"), ("--write-s", "1")])
def test_clients_that_stop_reading_hold_nothing_for_ever(bound: tuple[str, ...]) -> None:
    """Each event has 20 KB: the system's buffers, of some MB, are soon full. With the delay of
    each step the answers take 8 seconds."""
    most = 8
    asked = {"prompt": ["x"] * most, "max_tokens": 400, "ignore_eos": True, "stream": True}
    options = ("--max-queue", str(most - 4), "--name", "n" * 20_000, *bound)
    with running(*options) as server, connected(server, buffer=4096) as connection:
        connection.sendall(asking("/v1/completions", asked))
        assert b"200" in connection.recv(20)  # or the next may be taken before it, and it refused
        url, body = f"{server.url}/v1/completions", {"prompt": ["x"] * most, "max_tokens": 1}
        assert eventually(lambda: httpx.post(url, json=body, timeout=60).status_code == 503)
        assert eventually(lambda: httpx.post(url, json=body, timeout=60).is_success)
        assert eventually(lambda: idle(server))
        with suppress(ConnectionResetError):
            assert b"[DONE]" not in all_of(connection)
