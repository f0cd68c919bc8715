"""A short soak over a small random encoder of each task: all of its addresses, bodies that must be
refused, kills and sleeps of the engine. The long form is `python -m benchmarks.server.soak`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.server import soak
from benchmarks.server.soak import Soak
from benchmarks.server.soak_encoders import EncoderRequests, hostile_bodies
from tests.compiler.models.helpers.encoder_checkpoints import make_encoder
from tests.compiler.models.test_encoders import compiled
from tests.runtime.server.clients.test_kserve import ENCODERS
from tests.runtime.server.helpers.server_process import serving_models

pytestmark = pytest.mark.long
REQUESTS, CLIENTS, KILLS, SLEEPS = 400, 6, 1, 2


@pytest.mark.parametrize("task", ENCODERS)
def test_no_text_is_lost(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SAMPLES", 8)
    monkeypatch.setattr(soak, "GROWTH", 2.0)  # so few requests still warm up
    (tmp_path / task).mkdir()
    make_encoder(ENCODERS[task], tmp_path / task)
    folder = compiled(tmp_path / task, "cpu")
    with serving_models(str(folder)) as server:
        own = EncoderRequests(11, task, str(soak.model_of(server.url)["id"]))
        work = Soak(
            server.url, server.process.pid, requests=REQUESTS, clients=CLIENTS, vocab=0,
            kills=KILLS, sleeps=SLEEPS, own=own,
        )  # fmt: skip
        asyncio.run(work.run())
    print("\n".join(work.wrong))  # the answers themselves
    assert work.faults() == [], work.outcomes
    assert work.outcomes.total() == REQUESTS
    assert (work.killed, work.slept) == (KILLS, SLEEPS)
    kinds = {name.rpartition(": ")[0] for name in work.outcomes}
    assert {call.kind for call in (*own.fixed, *hostile_bodies(""))} <= kinds
    assert {"plain: asleep", "plain: answered", "hangs up: left"} <= set(work.outcomes)
