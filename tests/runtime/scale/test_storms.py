"""On a real Ray, for minutes (`--long`): requests while replicas are killed, and while the number
of replicas follows the load. Runs scripts of `benchmarks/scale/` and asserts on their results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long
pytest.importorskip("ray", reason="needs ray: pip install mlcc[ray]")
ROOT = Path(__file__).parents[3]
BAD = ("lost", "twice", "wrong")


def result_of(script: str, *options: str) -> dict[str, Any]:
    """The JSON of a benchmark's last line."""
    command = [sys.executable, "-m", f"benchmarks.scale.{script}", *options]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=600, cwd=ROOT
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_no_request_is_lost_or_answered_twice_where_replicas_are_killed() -> None:
    result = result_of("replica_kills", "--requests", "600", "--kills", "3", "--kill-s", "4")
    assert not any(result[bad] for bad in BAD), result
    ends = result["complete"] + result["aborted"] + result["given_up"]
    assert ends == result["requests"] >= 600 and result["given_up"] < 10, result
    assert sum(result["kills"].values()) >= 3, result


def test_as_many_as_the_load_wants_and_none_without() -> None:
    result = result_of("autoscaling")
    assert result["complete"] == result["requests"] > 100, result
    assert set(result["took_s"]) == {"one", "many", "one again", "none"}, result
    assert all(took is not None for took in result["took_s"].values()), result
    assert result["cold_ms"] > result["warm_ms"], result
