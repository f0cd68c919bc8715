"""The registry of running servers: which are found, and that other processes are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.commands.server_registry import announced, servers
from mlcc.errors import MlccError

URL = "http://127.0.0.1:1"
ANNOUNCE = "import sys; from mlcc.commands.server_registry import announced\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "mlcc" / "servers"


def test_one_is_found_while_it_runs(state: Path) -> None:
    with announced(URL):
        assert [(each.url, each.pid) for each in servers()] == [(URL, os.getpid())]
    assert servers() == [] and not list(state.iterdir())


def test_a_killed_ones_file_is_put_away(state: Path) -> None:
    with announcing() as process:
        assert [each.pid for each in servers()] == [process.pid]
        process.kill()
    assert servers() == [] and not list(state.iterdir())


def test_stop_ends_no_process_that_got_a_dead_ones_number(state: Path) -> None:
    state.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (state / f"{other.pid}.json").write_text(json.dumps({"url": URL}))
        result = CliRunner().invoke(cli, ["stop", "--all"])
        assert "no server runs here" in str(result.exception)
        assert other.poll() is None and not list(state.iterdir())
        other.communicate(b"\n")
        assert other.returncode == 0


@contextmanager
def announcing() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the registry that ends by SIGTERM."""
    code = f"{ANNOUNCE}with announced({URL!r}): print('here', flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=pipe, stdout=pipe, env=environment
    ) as process:
        assert process.stdout and process.stdout.readline() == b"here\n"
        yield process
        process.kill()


@pytest.mark.parametrize("words", [[], ["--all", "model"], ["--all", "--url", URL]], ids=" ".join)
def test_stop_ends_nothing_that_was_not_named(words: list[str]) -> None:
    with announcing() as server:
        result = CliRunner().invoke(cli, ["stop", *words])
        assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
        assert "--all" in result.output and "--url" in result.output
        assert server.poll() is None


def test_stop_ends_the_server_at_a_url() -> None:
    with announcing() as server:
        other = CliRunner().invoke(cli, ["stop", "--url", "http://127.0.0.1:9"])
        assert other.exit_code != 0 and "where it was started" in str(other.exception)
        assert server.poll() is None
        result = CliRunner().invoke(cli, ["stop", "--url", f"{URL}/v1"])
        assert result.exit_code == 0, result.output
        assert server.wait(30) == -signal.SIGTERM


def test_stop_all_ends_every_server() -> None:
    with announcing() as one, announcing() as other:
        result = CliRunner().invoke(cli, ["stop", "--all"])
        assert result.exit_code == 0, result.output
        assert one.wait(30) == other.wait(30) == -signal.SIGTERM


@contextmanager
def breaking_off(*, whole: bool) -> Iterator[str]:
    """A server that lists a model and ends each stream before its end."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._begin()
            self._send(b'{"data": [{"id": "one"}]}')
            self.wfile.write(b"0\r\n\r\n")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._begin()
            self._send(b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n')
            if whole:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def _begin(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def _send(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize("whole", [True, False], ids=["no DONE", "cut"])
def test_a_server_that_dies_in_its_answer_is_one_line(
    monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # is not asked for what is here
    with breaking_off(whole=whole) as url:
        result = CliRunner().invoke(cli, ["chat", "-", "Hello", "--url", url])
    assert "Hel" in result.output and isinstance(result.exception, MlccError)
    assert f"{url} broke off in the middle of its answer" in str(result.exception)


@pytest.mark.parametrize(
    "option",
    [["--threads", "1"], ["--quant", "q8"], ["--no-prefix-cache"], ["--parse-special"]],
    ids=lambda option: option[0],
)
def test_chat_with_a_server_refuses_what_is_for_a_model_here(option: list[str]) -> None:
    result = CliRunner().invoke(cli, ["chat", "-", "Hello", "--url", URL, *option])
    assert isinstance(result.exception, MlccError) and "is for a model that is" in str(
        result.exception
    )
