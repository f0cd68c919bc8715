"""HTTP beyond the API: request ids, the log, methods, compressed bodies, pages of other origins,
proxies, TLS, keepalives."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from click.testing import CliRunner

from mlcc.commands.serve.command import serve_command
from tests.runtime.server.helpers.server_process import RunningServer, running

HELLO = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
ORIGIN = "https://app.example"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served() -> Iterator[RunningServer]:
    with running("--hosts", "--cors-origin", ORIGIN, "--root-path", "/llm") as server:
        yield server


@pytest.fixture(scope="module")
def http(served: RunningServer) -> Iterator[httpx.Client]:
    place = urlsplit(served.url)
    with httpx.Client(base_url=f"http://{place.netloc}", timeout=60) as client:
        yield client


def test_a_request_has_a_name(http: httpx.Client) -> None:
    own = [http.get(path).headers["x-request-id"] for path in ("/health", "/health", "/nothing")]
    assert len({*own}) == 3 and all(name.startswith("req-") for name in own)
    for given, kept in (("abc-1", True), ("a b", False), ("x" * 129, False)):
        found = http.get("/v1/models", headers={"x-request-id": given}).headers["x-request-id"]
        assert (found == given) is kept


def test_head_and_options(http: httpx.Client) -> None:
    whole = http.get("/v1/models")
    head = http.head("/v1/models")
    assert head.status_code == 200 and head.content == b""
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert http.head("/v1/nothing").status_code == 404
    assert http.options("/v1/models").headers["allow"] == "GET, OPTIONS, HEAD"
    asked = http.options("/v1/chat/completions")
    assert asked.status_code == 204 and asked.headers["allow"] == "POST, OPTIONS"
    assert http.options("/nothing").status_code == 404


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip", "identity"])
def test_a_compressed_body(http: httpx.Client, encoding: str) -> None:
    packed = json.dumps(HELLO).encode()
    packed = packed if encoding == "identity" else gzip.compress(packed)
    headers = {**JSON, "Content-Encoding": encoding}
    answer = http.post("/v1/chat/completions", content=packed, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("encoding", "body", "status", "code"),
    [
        ("br", b"x", 415, "unsupported_encoding"),
        ("deflate", zlib.compress(b"{}"), 415, "unsupported_encoding"),
        ("gzip, gzip", b"x", 415, "unsupported_encoding"),
        ("gzip", b"{}", 400, "invalid_encoding"),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-3], 400, "invalid_encoding"),
        ("gzip", gzip.compress(b"{}", mtime=0) + b"more", 400, "invalid_encoding"),
        ("gzip", gzip.compress(b" " * 5_000_000, mtime=0), 413, "body_too_large"),
    ],
)
def test_one_that_is_not_read(
    http: httpx.Client, encoding: str, body: bytes, status: int, code: str
) -> None:
    headers = {**JSON, "Content-Encoding": encoding}
    answer = http.post("/v1/completions", content=body, headers=headers)
    assert answer.status_code == status and answer.json()["error"]["code"] == code
    if status == 415:
        assert repr(encoding) in answer.json()["error"]["message"]
        assert answer.headers["accept-encoding"] == "gzip"


def test_a_page_of_an_origin_that_may_ask(http: httpx.Client) -> None:
    wanted = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    before = http.options("/v1/chat/completions", headers=wanted)
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in before.headers["access-control-allow-methods"]
    answer = http.post("/v1/chat/completions", json=HELLO, headers={"Origin": ORIGIN})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    other = {"Origin": "https://app.example.evil"}
    assert http.options("/v1/models", headers={**wanted, **other}).status_code == 400
    refused = http.get("/v1/models", headers=other)
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers


def test_by_default_no_other_origin_may(server: RunningServer) -> None:
    answer = httpx.get(f"{server.url}/v1/models", headers={"Origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_behind_a_proxy(served: RunningServer, http: httpx.Client) -> None:
    assert served.url.endswith("/llm")
    for prefix in ("", "/llm"):  # one that takes its path away again, and one that does not
        assert http.post(f"{prefix}/v1/chat/completions", json=HELLO).status_code == 200
        assert http.get(f"{prefix}/v1/models/toy").json()["id"] == "toy"
        assert http.get(f"{prefix}/docs").status_code == 200
        assert http.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/llm"}]
        assert "/v1/chat" in http.get(f"{prefix}/nothing").json()["error"]["message"]
    assert http.get("/llmv1/models").status_code == 404


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    for blob in cert.cert_chain_pems:
        blob.write_to_path(chain, append=True)
    cert.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with running("--cert", str(chain), str(key)) as server:
        assert server.url.startswith("https://")
        body = {**HELLO, "stream": True}
        with httpx.Client(verify=context, timeout=60) as client:
            answer = client.post(f"{server.url}/v1/chat/completions", json=body)
            assert answer.text.endswith("data: [DONE]\n\n")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")


def refused(*options: str) -> str:
    """The error of `mlcc serve` for invalid options, before it opens the model."""
    return str(CliRunner().invoke(serve_command, ["no-such-model", *options]).exception)


def test_options_that_cannot_be(tmp_path: Path) -> None:
    other = tmp_path / "no.pem"
    other.write_text("no certificate")
    assert "--ssl-certfile" in refused("--ssl-keyfile", str(other))
    for path in (other, tmp_path / "missing.pem"):
        assert f"--ssl-certfile {path}" in refused("--ssl-certfile", str(path))
    for origin in ("app.example", "https://app.example/", "https://app.example/page", ""):
        assert "is no origin" in refused("--cors-origin", origin)


def log_of(server: RunningServer) -> str:
    server.process.terminate()
    assert server.process.stderr
    return server.process.stderr.read()


def test_a_line_for_each_request() -> None:
    with running("--log-level", "info", "--api-key", "sesame") as server:
        headers = {"x-request-id": "mine", "Authorization": "Bearer sesame"}
        url = f"{server.url}/v1/chat/completions"
        assert httpx.post(url, json=HELLO, headers=headers).status_code == 200
        httpx.get(f"{server.url}/no\N{LINE SEPARATOR}thing?secret=1")
        log = log_of(server)
    line = next(line for line in log.splitlines() if "chat/completions" in line)
    assert '127.0.0.1 "POST /v1/chat/completions" 200' in line and "[mine]" in line
    assert "key='key 1'" in line and "sesame" not in log and "secret" not in log
    assert "\N{LINE SEPARATOR}" not in log and '/no\\u2028thing" 401' in log


def test_lines_of_json() -> None:
    with running("--log-level", "info", "--log-json") as server:
        httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "max_tokens": 2})
        httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "nonsense": 2})
        lines: list[dict[str, Any]] = [json.loads(line) for line in log_of(server).splitlines()]
    first = next(line for line in lines if line["logger"] == "mlcc.access")
    assert first["path"] == "/v1/completions" and first["status"] == 200
    assert first["request_id"].startswith("req-") and first["seconds"] >= first["first_seconds"]
    ignored = next(line for line in lines if "nonsense" in line["message"])
    assert ignored["level"] == "warning" and ignored["request_id"].startswith("req-")


def test_a_websocket_is_refused_without_advice() -> None:
    with running("--log-level", "debug") as server:
        place = urlsplit(server.url)
        with socket.create_connection((place.hostname, place.port), 60) as client:
            client.sendall(
                b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            assert b" 501 " in client.recv(65536).partition(b"\r\n")[0]
        log = log_of(server)
    assert "uvicorn" not in log and "WebSocket" not in log


def test_a_silent_stream_says_that_it_lives() -> None:
    with (
        running("--delay", "0.5", "--ping-s", "0.05") as server,
        httpx.Client(timeout=60) as client,
    ):
        url = f"{server.url}/v1/chat/completions"
        with client.stream("POST", url, json={**HELLO, "stream": True}) as answer:
            pieces = list(answer.iter_text())
    whole = "".join(pieces)
    assert "\n\n:\n\n" in whole and whole.endswith("data: [DONE]\n\n")
    events = [event for event in whole.split("\n\n") if event not in (":", "")]
    assert all(event.startswith("data: ") for event in events), "no event is torn by one"
