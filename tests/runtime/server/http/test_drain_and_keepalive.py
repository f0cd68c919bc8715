"""What a server that shuts down still answers, and comments in silent streams; without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.server.http import keepalive
from mlcc.server.http.drain import DrainGate, DrainState
from mlcc.server.http.keepalive import COMMENT, Keepalive


class App:
    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})


async def status(gate: DrainGate, path: str) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "path": path, "root_path": "", "headers": []}
    await gate(scope, receive, send)
    return int(sent[0]["status"])


def test_a_draining_server_answers_monitoring_alone() -> None:
    async def run() -> None:
        state = DrainState()
        gate = DrainGate(App(), state)
        paths = ("/health", "/metrics", "/ready", "/v1/models")
        assert [await status(gate, path) for path in paths] == [200] * 4
        assert await state.drain(60)
        assert [await status(gate, path) for path in paths] == [200, 200, 503, 503]
        assert state.in_flight == 0

    asyncio.run(run())


def test_running_requests_are_waited_for() -> None:
    async def run() -> None:
        app, state = App(), DrainState()
        gate = DrainGate(app, state)
        app.go.clear()
        running = asyncio.ensure_future(status(gate, "/v1/models"))
        watched = asyncio.ensure_future(status(gate, "/metrics"))
        await asyncio.sleep(0)
        assert state.in_flight == 1, "monitoring is not waited for"
        assert not await state.drain(0.01)
        draining = asyncio.ensure_future(state.drain(60))
        await asyncio.sleep(0)
        app.go.set()
        assert await draining and await running == await watched == 200

    asyncio.run(run())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Time goes on by what is slept."""
    now, sleep = [100.0], asyncio.sleep

    async def slept(seconds: float) -> None:
        now[0] += seconds
        await sleep(0)

    monkeypatch.setattr(keepalive, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(keepalive.asyncio, "sleep", slept)
    yield now


def test_a_comment_after_each_silence(clock: list[float]) -> None:
    sent: list[Any] = []
    went_on = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append((clock[0], message["body"], message["more_body"]))
        if len(sent) == 3:
            went_on.set()
            await asyncio.get_running_loop().create_future()  # the stream ends here

    async def run() -> None:
        async with Keepalive(send, 15) as alive:
            clock[0] += 10
            alive.sent()
            await went_on.wait()
            task = alive._task
        assert task is not None
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert sent == [(125.0, COMMENT, True), (140.0, COMMENT, True), (155.0, COMMENT, True)]


def test_none_if_it_is_off(clock: list[float]) -> None:
    async def run() -> None:
        async with Keepalive(pytest.fail, float("inf")) as alive:  # type: ignore[arg-type]
            assert alive._task is None

    asyncio.run(run())
