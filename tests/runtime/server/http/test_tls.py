"""TLS connections are counted and timed from accept on, whether they begin a handshake or not."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import httpx
import pytest
import trustme

from mlcc.server.http.connection import REFUSED
from tests.runtime.server.helpers.server_process import RunningServer, eventually, running
from tests.runtime.server.http.test_connections import all_of, asking, connected, gone

MOST = 6
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


@dataclass
class Certificate:
    options: tuple[str, ...]
    """Options of the server."""
    trusted: ssl.SSLContext
    """The client's."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key = folder / "chain.pem", folder / "key.pem"
    for blob in issued.cert_chain_pems:
        blob.write_to_path(chain, append=True)
    issued.private_key_pem.write_to_path(key)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    return Certificate(("--cert", str(chain), str(key), "--connections", str(MOST)), trusted)


@pytest.fixture(scope="module")
def hasty(certificate: Certificate) -> Iterator[RunningServer]:
    with running(*certificate.options, "--head-s", "0.3") as server:
        yield server


@contextmanager
def shaken(server: RunningServer, certificate: Certificate) -> Iterator[ssl.SSLSocket]:
    """A connection after its handshake."""
    with (
        connected(server) as plain,
        certificate.trusted.wrap_socket(plain, server_hostname="127.0.0.1") as made,
    ):
        yield made


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has closed a connection on which nothing was sent."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("start", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_handshake_that_never_ends(hasty: RunningServer, start: bytes) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(hasty)) for _ in range(3 * MOST)]
        for connection in opened:
            connection.settimeout(20)  # asyncio's own bound is 60 s
            with suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(start)
        assert all(gone(connection) for connection in opened)


def test_a_head_that_never_ends(hasty: RunningServer, certificate: Certificate) -> None:
    with shaken(hasty, certificate) as connection:
        connection.sendall(HEALTH[:20])
        with suppress(ssl.SSLError):
            assert gone(connection)


def test_connections_without_a_handshake_count(certificate: Certificate) -> None:
    with running(*certificate.options, "--head-s", "60") as server, ExitStack() as stack:
        first = [stack.enter_context(connected(server)) for _ in range(MOST)]
        with shaken(server, certificate) as refused:
            answer = all_of(refused)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"too_many_connections" in answer
        more = [stack.enter_context(connected(server)) for _ in range(REFUSED + 20)]
        assert eventually(lambda: sum(map(is_closed, more)) >= 20)
        assert sum(map(is_closed, [*first, *more])) == 20
        stack.close()
        url = f"{server.url}/health"

        def answers() -> bool:
            with suppress(httpx.TransportError):
                return httpx.get(url, verify=certificate.trusted, timeout=60).status_code == 200
            return False

        assert eventually(answers)


def test_a_request_in_the_packet_that_ends_the_handshake(
    hasty: RunningServer, certificate: Certificate
) -> None:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificate.trusted.wrap_bio(received, sent, server_hostname="127.0.0.1")
    with connected(hasty) as connection:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(sent.read())
                received.write(connection.recv(65536))
        client.write(HEALTH)
        connection.sendall(sent.read())
        answer = b""
        while b"\r\n\r\n" not in answer:
            received.write(connection.recv(65536))
            with suppress(ssl.SSLWantReadError):
                answer += client.read()
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_client_that_stops_reading_holds_nothing_for_ever(certificate: Certificate) -> None:
    """As over plain HTTP (`test_connections.py`): 8 answers of 400 events of 20 KB."""
    asked = {"prompt": ["x"] * 8, "max_tokens": 400, "ignore_eos": True, "stream": True}
    options = ("--write-s", "1", "--max-queue", "4", "--name", "n" * 20_000)
    with (
        running(*certificate.options, *options) as server,
        shaken(server, certificate) as connection,
        httpx.Client(base_url=server.url, verify=certificate.trusted, timeout=60) as client,
    ):
        connection.sendall(asking("/v1/completions", asked))
        assert b"200" in connection.recv(20)
        body = {"prompt": ["x"] * 8, "max_tokens": 1}
        assert eventually(lambda: client.post("/v1/completions", json=body).status_code == 503)
        assert eventually(lambda: client.post("/v1/completions", json=body).is_success)
        stats = client.get("/health").json()["engine"]
        assert stats["running"] == stats["waiting"] == 0
        with suppress(ConnectionResetError, ssl.SSLError):
            assert b"[DONE]" not in all_of(connection)


def test_stopping_does_not_wait_for_handshakes(certificate: Certificate) -> None:
    with running(*certificate.options, "--head-s", "60") as server, connected(server) as silent:
        with shaken(server, certificate):
            server.process.terminate()
            assert server.process.wait(60) == 0
        assert gone(silent)


def test_a_body_that_turns_invalid_leaves_no_trace_in_the_log(certificate: Certificate) -> None:
    """The server closes twice: after its 400, and after the answer to the part that was read."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with running(*certificate.options) as server:
        with shaken(server, certificate) as connection:
            connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n")
            connection.sendall(b"no chunk\r\n")
            with suppress(ssl.SSLError):
                assert all_of(connection).startswith(b"HTTP/1.1 400 ")
        server.process.terminate()
        assert server.process.stderr
        assert server.process.stderr.read() == ""
