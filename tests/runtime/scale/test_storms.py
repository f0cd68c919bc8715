"""On a real Ray, for minutes (`--long`): what becomes of requests while replicas are killed, and
while their number follows the load. The scripts are benchmarks; what must hold of them is here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long
pytest.importorskip("ray")
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
BAD = ("lost", "twice", "wrong")


def found(script: str, *options: str) -> dict[str, Any]:
    """What a benchmark says in its last line."""
    command = [sys.executable, str(BENCHMARKS / script), *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_no_request_is_lost_or_answered_twice_where_replicas_are_killed() -> None:
    told = found("kills.py", "--requests", "600", "--kills", "3", "--kill-s", "4")
    assert not any(told[bad] for bad in BAD), told
    ends = told["whole"] + told["told"] + told["given_up"]
    assert ends == told["requests"] >= 600 and told["given_up"] < 10, told
    assert sum(told["kills"].values()) >= 3, told


def test_as_many_as_the_load_wants_and_none_without() -> None:
    told = found("autoscale.py")
    assert told["whole"] == told["requests"] > 100, told
    assert set(told["took_s"]) == {"one", "many", "one again", "none"}, told
    assert all(took is not None for took in told["took_s"].values()), told
    assert told["cold_ms"] > told["warm_ms"], told
