"""A short soak over the toy model: all protocols, hostile bodies, slow readers and kills of the
engine and of the processes that read prompts and bodies, over HTTP/1.1 and over TLS. Asserts
counts, never times; the long form is `benchmarks/server/soak.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.server import soak
from benchmarks.server.soak import Soak
from benchmarks.server.soak_requests import fixed_calls, hostile_calls, image_calls
from tests.helpers.grpc_client import free_port
from tests.runtime.multimodal.helpers import seeing_server
from tests.runtime.server.helpers.server_process import PROGRAM, running

REQUESTS, CLIENTS, KILLS, SLEEPS = 260, 8, 3, 2
TOY_VOCABULARY = 90


LONG = [pytest.param(kind, marks=pytest.mark.long) for kind in ("plain", "grpc", "tls")]


@pytest.mark.parametrize("kind", ["sees", *LONG])
def test_nothing_is_lost(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `plain` asks, `sees` does too, over the same HTTP/1.1."""
    monkeypatch.setattr(soak, "SAMPLES", 8)
    monkeypatch.setattr(soak, "GROWTH", 2.0)  # so few requests still warm up
    options, context = ["--max-queue", "1000", "--max-body", str(4 << 20), "--timeout", "600"], None
    program = PROGRAM
    if kind == "tls":
        path, context = soak.certificate(tmp_path)
        options += ["--cert", str(path), str(path)]
    if kind == "sees":
        options, program = ["0"], Path(seeing_server.__file__)
    port = free_port() if kind == "grpc" else 0
    options += ["--grpc-port", str(port)] * (kind == "grpc")
    with running(*options, program=program) as server:
        work = Soak(
            server.url,
            server.process.pid,
            requests=REQUESTS,
            clients=CLIENTS,
            vocab=TOY_VOCABULARY,
            kills=KILLS,
            sleeps=SLEEPS * (kind == "plain"),
            grammars=False,
            context=context,
            grpc_port=port,
        )
        asyncio.run(work.run())
    print("\n".join(work.wrong))  # the answers themselves
    assert work.faults() == [], work.outcomes
    by_grpc = {name: n for name, n in work.outcomes.items() if name.startswith("grpc ")}
    assert (sum(n for name, n in by_grpc.items() if "answered" in name) > 20) is (kind == "grpc")
    assert work.outcomes.total() - sum(by_grpc.values()) == REQUESTS and work.killed == KILLS
    kinds = {name.rpartition(": ")[0] for name in work.outcomes}
    fixed = fixed_calls("") + image_calls() * (kind == "sees")
    assert {call.kind for call in fixed} <= kinds
    assert "slow" in kinds and "hangs up" in kinds
    asleep = sum(count for name, count in work.outcomes.items() if name.endswith("asleep"))
    assert (asleep > 0) is (work.slept > 0) is (kind == "plain")
    assert any(call.kind in kinds for call in hostile_calls() if len(call.body) > 64 << 10)
    broken = sum(count for name, count in work.outcomes.items() if name.endswith("broken"))
    assert broken <= CLIENTS * KILLS  # at most each client's one request, for each kill
