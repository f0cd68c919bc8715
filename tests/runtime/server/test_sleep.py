"""/sleep and /wake_up: the engine's process is gone meanwhile, and requests get a 503."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlcc.api.errors import BusyError, SleepingError
from mlcc.errors import ArtifactError, MlccError, UnsupportedError
from mlcc.worker.client import EngineThread, WorkerClient
from mlcc.worker.process import EngineProcess
from tests.helpers.toy.toy_model import open_toy
from tests.runtime.server.helpers.openers import open_if, open_or_die
from tests.runtime.server.helpers.server_process import (
    PLAIN,
    RunningServer,
    eventually,
    idle,
    running,
)

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}
LONG = {**CHAT, "max_tokens": 200, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running("--delay", "0.01", "--max-queue", "1000") as started:
        yield started


def post(server: RunningServer, path: str, **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json=body or None, timeout=60, verify=PLAIN)


def get(server: RunningServer, path: str) -> httpx.Response:
    return httpx.get(server.url + path, timeout=60, verify=PLAIN)


def chat(server: RunningServer, **more: Any) -> httpx.Response:
    return post(server, "/v1/chat/completions", **CHAT, **more)


def test_asleep_and_back(server: RunningServer) -> None:
    before, children = chat(server).json()["choices"][0]["message"], server.children()
    assert get(server, "/is_sleeping").json() == {"is_sleeping": False}
    assert post(server, "/sleep").status_code == 200
    try:
        gone = set(children) - set(server.children())
        assert len(gone) == 1, "the engine's process has ended"
        assert get(server, "/is_sleeping").json() == {"is_sleeping": True}
        assert post(server, "/sleep?level=2").status_code == 200, "it sleeps already"
        for path, body in (
            ("/v1/chat/completions", CHAT),
            ("/v1/completions", {"prompt": "a", "stream": True}),
            ("/api/chat", {"messages": CHAT["messages"]}),
            ("/generate", {"inputs": "a"}),
        ):
            answer = httpx.post(server.url + path, json=body)
            assert answer.status_code == 503 and "POST /wake_up wakes it" in answer.text
            assert answer.headers["retry-after"]
        ready = get(server, "/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "Sleeping")
        assert get(server, "/health").json() == {"status": "sleeping", "model": "toy"}
        (listed,) = get(server, "/v1/models").json()["data"]
        assert (listed["id"], listed["state"]) == ("toy", "sleeping")
        assert 'mlcc_engine_sleeping{model="toy"} 1.0' in get(server, "/metrics").text
    finally:
        assert post(server, "/wake_up").status_code == 200
    assert post(server, "/wake_up").status_code == 200, "it is awake already"
    assert chat(server).json()["choices"][0]["message"] == before
    assert get(server, "/ready").status_code == 200 and eventually(lambda: idle(server))
    metrics = get(server, "/metrics").text
    assert 'mlcc_engine_sleeping{model="toy"} 0.0' in metrics
    assert 'mlcc_engine_ended_total{model="toy"}' not in metrics, "that is no crash"


@pytest.mark.parametrize("mode", ["abort", "wait"])
def test_running_requests_end_as_asked(server: RunningServer, mode: str) -> None:
    with ThreadPoolExecutor() as pool:
        running_one = pool.submit(post, server, "/v1/chat/completions", **LONG)
        assert eventually(lambda: get(server, "/health").json()["engine"]["running"] == 1)
        sleeping = pool.submit(post, server, f"/sleep?mode={mode}")
        assert eventually(lambda: get(server, "/is_sleeping").json()["is_sleeping"])
        assert chat(server).status_code == 503
        answer = running_one.result()
        assert sleeping.result().status_code == 200
    assert post(server, "/wake_up?tags=weights&tags=kv_cache").status_code == 200
    if mode == "wait":
        assert answer.json()["usage"]["completion_tokens"] == 200
    else:
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "sleeping"
    assert chat(server).status_code == 200


def test_a_stream_ends_with_the_reason(server: RunningServer) -> None:
    with httpx.stream(
        "POST", f"{server.url}/v1/chat/completions", json={**LONG, "stream": True}, timeout=60
    ) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert post(server, "/sleep").status_code == 200
        rest = [line for line in lines if line.startswith("data: ")]
    assert post(server, "/wake_up").status_code == 200
    assert json.loads(rest[-1][6:])["error"]["code"] == "sleeping"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/sleep?level=0", "'level' '0' is not built"),
        ("/sleep?mode=keep", "'mode' 'keep' is not built"),
        ("/wake_up?tags=weights", "leave 'tags' out"),
        ("/wake_up?tags=arms", "'tags' has 'arms'"),
    ],
)
def test_what_is_not_built_is_named(server: RunningServer, path: str, words: str) -> None:
    answer = post(server, path)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"]
    assert get(server, "/is_sleeping").json() == {"is_sleeping": False}


def test_a_web_page_cannot(server: RunningServer) -> None:
    for path in ("/sleep", "/wake_up"):
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site"}):
            assert httpx.post(server.url + path, headers=headers).status_code == 403


def test_every_request_of_a_storm_is_answered_or_told_why(server: RunningServer) -> None:
    def ask(number: int) -> int:
        status = chat(server, seed=number).status_code
        assert status in (200, 503)
        return status

    with ThreadPoolExecutor(8) as pool:
        asked = pool.map(ask, range(120))
        for mode in ("abort", "wait"):
            assert post(server, f"/sleep?mode={mode}").status_code == 200
            assert post(server, "/wake_up").status_code == 200
        assert len([*asked]) == 120
    assert chat(server).status_code == 200 and eventually(lambda: idle(server))


def with_client(process: EngineProcess, use: Callable[[WorkerClient], Awaitable[None]]) -> None:
    """Run `use` with a client of the process, which ends after it."""

    async def run() -> None:
        engine = WorkerClient(process, 8)
        engine.start()
        try:
            await use(engine)
        finally:
            engine.stop()

    try:
        asyncio.run(run())
    finally:
        process.close()


async def ready_again(engine: WorkerClient) -> None:
    for _ in range(500):
        await asyncio.sleep(0.02)
        if engine.ready:
            break
    engine.check_alive()


def test_a_model_that_does_not_load_again_says_why(tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.touch()

    async def use(engine: WorkerClient) -> None:
        await engine.sleep(False)
        with pytest.raises(SleepingError):
            engine.check_alive()
        file.unlink()
        with pytest.raises(ArtifactError, match="the folder is gone"):
            await engine.wake()
        with pytest.raises(MlccError, match="the folder is gone"):
            engine.check_alive()
        file.touch()
        await ready_again(engine)

    with_client(EngineProcess(partial(open_if, file)), use)


def test_a_process_that_is_killed_while_it_wakes_is_started_again(tmp_path: Path) -> None:
    """Meanwhile the answer is to ask again."""
    file = tmp_path / "there"

    async def use(engine: WorkerClient) -> None:
        await engine.sleep(False)
        file.touch()
        with pytest.raises(BusyError, match=r"SIGKILL.*send the request again") as first:
            await engine.wake()
        assert (first.value.http_status, first.value.code) == (503, "engine_starting")
        with pytest.raises(BusyError):
            await engine.wake()
        await ready_again(engine)
        await engine.wake()

    with_client(EngineProcess(partial(open_or_die, file)), use)


def test_a_server_that_sleeps_ends_at_once(tmp_path: Path) -> None:
    with running() as server:
        assert post(server, "/sleep").status_code == 200
    assert server.process.returncode == 0


def test_an_engine_in_this_process_does_not_sleep() -> None:
    thread = EngineThread(open_toy)

    async def run() -> None:
        engine = WorkerClient(thread, 8)
        engine.start()
        try:
            with pytest.raises(UnsupportedError, match="`mlcc serve` of one machine"):
                await engine.sleep(False)
        finally:
            engine.stop()

    try:
        asyncio.run(run())
    finally:
        thread.close()
