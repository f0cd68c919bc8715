"""Deadlines do not depend on the wall clock: a server whose clock jumps by years at each look
answers, limits and ends requests as ever."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.runtime.server.helpers.server_process import RunningServer, running
from tests.runtime.server.http.test_connections import all_of, asking, connected

PROGRAM = """
import itertools, time
from tests.runtime.server.helpers.toy_server import main

year, real = 365 * 24 * 3600, time.time
jumps = itertools.cycle((0, 3 * year, -20 * year, 1, 30 * year))
time.time = lambda: real() + next(jumps)

if __name__ == "__main__":
    main()
"""
CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 20, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    program = tmp_path_factory.mktemp("jumps") / "jumping_server.py"
    program.write_text(PROGRAM)
    options = ("--delay", "0.01", "--body-window-s", "0.3", "--ping-s", "0.02")
    with running(*options, program=program) as started:
        yield started


def test_answers_are_whole(server: RunningServer) -> None:
    for timeout in (30, 3600):
        answer = httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, "timeout": timeout})
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 20
    streamed = httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, "stream": True})
    assert streamed.text.rstrip().endswith("data: [DONE]")


def test_a_deadline_is_kept(server: RunningServer) -> None:
    late = {**CHAT, "max_tokens": 1000, "timeout": 0.3}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=late, timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


def test_a_slow_body_is_ended(server: RunningServer) -> None:
    with connected(server) as connection:
        connection.sendall(asking("/v1/completions", b"{", declared=1000))
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 504 ") and b"less than 1024 bytes a second" in answer
