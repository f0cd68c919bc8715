"""Published shapes compile without their weights, in two minutes and 2 GB, and their memory is
planned: each pair in a process of its own, as `benchmarks/real_shapes.py` prints them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import needs

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "real_shapes.py"
SHAPES = {"qwen3-30b-a3b": 17_000, "gpt-oss-20b": 12_000, "deepseek-v2-lite": 9_000}
SHAPES |= {"qwen3.5-4b": 2_700}
"""Shape -> megabytes of weights at q4, at least."""


@pytest.mark.long
@pytest.mark.parametrize("target", ["cpu", "vulkan", "cuda", "webgpu"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_compiles_in_two_minutes_and_two_gigabytes(shape: str, target: str) -> None:
    needs.require_target(target)
    command = [sys.executable, SCRIPT, "--one", "--shape", shape, "--target", target]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert "refused" not in told, told
    assert told["cpu_seconds"] < 120 and told["peak_mb"] < 2000
    assert SHAPES[shape] < told["weights_mb"] < 1.1 * SHAPES[shape]
    assert (told["experts_mb"] > told["weights_mb"] / 2) is (shape != "qwen3.5-4b")
    assert told["caches_mb"] > 1000 and told["workspace_mb"] > 50
