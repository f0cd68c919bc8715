"""The engine's process is watched: which requests survive its end, and which errors are sent."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlcc.worker.process import FIRST_DELAY_S, HEALTHY_S, MAX_DELAY_S, Backoff, EngineProcess
from tests.helpers.toy.toy_model import open_toy
from tests.runtime.server.helpers.server_process import (
    RunningServer,
    alive,
    eventually,
    idle,
    running,
)

CHAT = {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True, "temperature": 0}
LONG = {**CHAT, "max_tokens": 400}
SHORT = {**CHAT, "max_tokens": 6}
SEATS = 4
"""Requests that the toy answers at once."""


def pid_of(folder: Path) -> int:
    return int((folder / "pid").read_text())


def kill_engine(folder: Path) -> int:
    """`kill -9`. Returns the id that is gone."""
    os.kill(pid := pid_of(folder), signal.SIGKILL)
    return pid


def ready(server: RunningServer) -> bool:
    return httpx.get(f"{server.url}/ready").status_code == 200


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[RunningServer, Path]]:
    with running("--watched", str(tmp_path), "--delay", "0.05") as server:
        yield server, tmp_path


def events(lines: Iterator[str]) -> Iterator[Any]:
    yield from (json.loads(line[6:]) for line in lines if line.startswith("data: {"))


def test_a_killed_engine_ends_streams_keeps_what_waits_and_comes_back(
    watched: tuple[RunningServer, Path],
) -> None:
    server, folder = watched
    url = f"{server.url}/v1/chat/completions"
    alone = httpx.post(url, json=SHORT, timeout=60).json()["choices"]
    with ExitStack() as stack, httpx.Client(timeout=60) as client:
        streams = []
        for _ in range(SEATS):
            stream = stack.enter_context(client.stream("POST", url, json={**LONG, "stream": True}))
            streams.append(events(stream.iter_lines()))
            while not next(streams[-1])["choices"][0]["delta"].get("content"):
                pass
        waits = stack.enter_context(client.stream("POST", url, json={**SHORT, "stream": True}))
        assert waits.status_code == 200  # the engine has it, and no seat
        gone = kill_engine(folder)
        for stream in streams:
            last = list(stream)[-1]["error"]
            assert last["code"] == "engine_died" and "SIGKILL" in last["message"]
        pieces = [
            event["choices"][0]["delta"].get("content", "") for event in events(waits.iter_lines())
        ]
        assert "".join(pieces) == alone[0]["message"]["content"]
    assert pid_of(folder) != gone and eventually(lambda: idle(server))
    assert ready(server) and not alive(gone)
    assert httpx.get(f"{server.url}/v1/models").status_code == 200
    server.process.terminate()
    assert server.process.stderr
    log = server.process.stderr.read()
    assert log.count("ended by SIGKILL") == 1 and f"{SEATS} answers are lost, 1 requests" in log
    assert "the engine is back; 1 requests waited" in log


def test_an_engine_that_does_not_start_is_reported_by_its_error_class(
    watched: tuple[RunningServer, Path],
) -> None:
    server, folder = watched
    url = f"{server.url}/v1/chat/completions"
    (folder / "shut").touch()
    kill_engine(folder)
    assert eventually(lambda: httpx.get(f"{server.url}/health").status_code == 503)
    health = httpx.get(f"{server.url}/health")
    assert health.json() == {"status": "dead", "reason": "DeviceError"}
    answer = httpx.get(f"{server.url}/ready")
    assert answer.status_code == 503 and answer.json()["reason"] == "DeviceError"
    assert answer.headers["retry-after"] == "1"
    for path in ("/v1/models", "/v1/models/toy"):
        assert httpx.get(server.url + path).json()["error"]["code"] == "engine_died"
    refusal = httpx.post(url, json=SHORT)
    assert refusal.status_code == 503 and "is shut" in refusal.json()["error"]["message"]
    assert refusal.headers["retry-after"] == "1" and "x-should-retry" not in refusal.headers
    (folder / "shut").unlink()
    assert eventually(lambda: ready(server))
    assert httpx.post(url, json=SHORT, timeout=60).status_code == 200


def test_a_request_at_which_each_engine_dies_is_kept_once() -> None:
    with running("--die-after", "2") as server:
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=LONG, timeout=60)
        assert answer.status_code == 500
        assert "engine process ended with exit code 7" in answer.json()["error"]["message"]
        assert eventually(lambda: ready(server)), "it does not give up"
        server.process.terminate()
        assert server.process.stderr
        log = server.process.stderr.read()
    assert log.count("ended with exit code 7") == 2


def test_a_closed_engine_ends_by_itself() -> None:
    """It is asked to stop, and killed only if it does not."""
    engine = EngineProcess(open_toy)
    process = engine._process
    engine.close()
    assert process is not None and process.exitcode == 0


def test_how_long_is_waited() -> None:
    now = 0.0
    backoff = Backoff(lambda: now)
    pauses = [backoff.pause() for _ in range(9)]
    assert (
        pauses[:4] == [0, FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
        and pauses[-1] == MAX_DELAY_S
    )
    assert backoff.pause() == MAX_DELAY_S
    backoff.began()
    now = HEALTHY_S / 2
    assert backoff.pause() == MAX_DELAY_S
    backoff.began()
    now += HEALTHY_S
    assert [backoff.pause(), backoff.pause()] == [0, FIRST_DELAY_S]
