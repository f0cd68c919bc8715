"""Models fetched by a running server: the steps of `mlcc pull`, here a program that prints its
lines, and the model that is added."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from mlcc.api.errors import BusyError
from mlcc.errors import CheckpointError, InvalidRequestError, UnsupportedError
from mlcc.server.models.pool import ModelPool
from mlcc.server.models.puller import Pulled, Puller
from mlcc.service.served_model import PullStep, ServiceBounds
from mlcc.service.service import Service
from tests.runtime.server.helpers.server_process import alive
from tests.runtime.server.models.test_pool import CHAT, ask, post, run, source

STEPS = [
    {"event": "note", "name": "model", "text": "a"},
    {"event": "step", "step": "downloading a", "done": 5, "total": 10, "unit": "bytes"},
    {"event": "step", "step": "compiling", "done": 1, "total": 3, "unit": "kernels"},
]


def program(*lines: str, then: str = "") -> tuple[str, ...]:
    """A command that prints these lines on its standard error."""
    prints = "".join(f"print({line!r}, file=sys.stderr, flush=True)\n" for line in lines)
    return sys.executable, "-c", f"import os, sys, time\n{prints}{then}"


def pool_with(tmp_path: Path, command: tuple[str, ...]) -> ModelPool:
    def open_source(name: str) -> Pulled:
        assert name == "hf://org/new"
        return Pulled(source(tmp_path, "new"), {"toy": None})

    puller = Puller(open_source, command=command)
    bounds = ServiceBounds(timeout_s=60)
    return ModelPool([source(tmp_path, "old")], {"toy": None}, bounds, 64, puller=puller)


async def lines_of(service: Service, name: str) -> list[dict[str, Any]]:
    answer = await post(service, {"model": name}, "/api/pull")
    assert not isinstance(answer.body, str), answer.body
    return [json.loads(line) async for line in answer.body]


def test_a_fetched_model_is_added_and_answers(tmp_path: Path) -> None:
    async def work() -> None:
        pool = pool_with(tmp_path, program(*map(json.dumps, STEPS)))
        service = Service(pool)
        assert await lines_of(service, "org/new") == [
            {"status": "downloading a", "total": 10, "completed": 5},
            {"status": "compiling"},
            {"status": "opening the model"},
            {"status": "success"},
        ]
        assert [entry.name for entry in pool.entries()] == ["old", "new"]
        for name in ("new", "org/new"):
            assert (await ask(service, {**CHAT, "model": name}))["model"] == name
        assert (await lines_of(service, "org/new"))[-1] == {"status": "success"}
        assert len(pool.entries()) == 2
        await pool.close()

    run(work())


@pytest.mark.parametrize(
    "line", ["error: no such repository", '{"event": "error", "message": "no such repository"}']
)
def test_a_fetch_that_fails_says_why_and_adds_nothing(tmp_path: Path, line: str) -> None:
    async def work() -> None:
        pool = pool_with(tmp_path, program(line, then="sys.exit(1)"))
        assert await lines_of(Service(pool), "org/new") == [{"error": "no such repository"}]
        assert len(pool.entries()) == 1
        with pytest.raises(CheckpointError, match="no such repository"):
            [step async for step in pool.pull("org/new")]

    run(work())


def test_a_client_that_leaves_ends_the_fetch_and_another_waits_for_none(tmp_path: Path) -> None:
    async def work() -> None:
        event = "import json\nevent = {'event': 'step', 'step': str(os.getpid())}\n"
        told = f"{event}print(json.dumps(event), file=sys.stderr, flush=True)\ntime.sleep(60)"
        pool = pool_with(tmp_path, program(then=told))
        async with aclosing(pool.pull("org/new")) as steps:
            first: PullStep = await steps.__anext__()
            with pytest.raises(BusyError, match="another model is being fetched"):
                pool.pull("org/other")
        assert not alive(int(first.status))
        async with aclosing(pool.pull("org/new")) as steps:
            await steps.__anext__()

    run(work())


def test_what_is_not_fetched(tmp_path: Path) -> None:
    pool = pool_with(tmp_path, program())
    for name in (str(tmp_path), "../old", "old folder", "unknown-short-name", "--help", ""):
        with pytest.raises(InvalidRequestError, match="is no name at the hub"):
            pool.pull(name)
    alone = ModelPool([source(tmp_path, "a")], {"toy": None}, ServiceBounds(), 64)
    with pytest.raises(UnsupportedError, match="adds no models: others can reach it"):
        alone.pull("org/new")
