"""Models fetched by a running server: the steps of `mlcc pull`, here a program that prints its
lines, and the model that is added."""

from __future__ import annotations

import json
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from mlcc.api.errors import BusyError
from mlcc.commands.serve.models import puller_of
from mlcc.engine_args import EngineArgs
from mlcc.errors import CheckpointError, InvalidRequestError, UnsupportedError
from mlcc.server.models.pool import ModelPool
from mlcc.server.models.puller import Pulled, Puller
from mlcc.service.served_model import PullStep, ServiceBounds
from mlcc.service.service import Service
from tests.compiler.weights.fake_hub import REPO, FakeHub, serving
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
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


def test_mlcc_pull_brings_a_model_of_a_hub_to_a_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    checkpoint = write_checkpoint(tmp_path / "tiny")
    hub = FakeHub({path.name: path.read_bytes() for path in checkpoint.iterdir()})

    async def work() -> None:
        puller = puller_of(EngineArgs("", target="reference", max_batch=1, context=64), False, {})
        bounds = ServiceBounds(timeout_s=60)
        pool = ModelPool([source(tmp_path, "old")], {"toy": None}, bounds, 64, puller=puller)
        service = Service(pool)
        lines = await lines_of(service, REPO)
        assert lines[-1] == {"status": "success"}, lines
        assert any("compl" in line["status"] or "pack" in line["status"] for line in lines)
        said = await ask(service, {**CHAT, "model": REPO})
        assert said["choices"][0]["finish_reason"] == "length", said
        await pool.close()

    with serving(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        run(work())
