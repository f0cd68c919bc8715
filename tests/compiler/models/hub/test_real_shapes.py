"""Published shapes compile without their weights, in two minutes and 2 GB, and get a memory plan:
each pair in a process, as printed by `benchmarks/models/real_shapes.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import needs

ROOT = Path(__file__).parents[4]
SCRIPT = (sys.executable, "-m", "benchmarks.models.real_shapes")
SHAPES = {"qwen3-30b-a3b": 17_000, "gpt-oss-20b": 12_000, "deepseek-v2-lite": 9_000}
SHAPES |= {"qwen3.5-4b": 2_700}
"""Shape -> megabytes of weights at q4, at least."""


@pytest.mark.long
@pytest.mark.parametrize("target", ["cpu", "vulkan", "cuda", "webgpu"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_compiles_in_two_minutes_and_two_gigabytes(shape: str, target: str) -> None:
    needs.require_target(target)
    command = [*SCRIPT, "--one", "--shape", shape, "--target", target]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    result = json.loads(done.stdout.splitlines()[-1])
    assert "refused" not in result, result
    assert result["cpu_seconds"] < 120 and result["peak_mb"] < 2000
    assert SHAPES[shape] < result["weights_mb"] < 1.1 * SHAPES[shape]
    assert (result["experts_mb"] > result["weights_mb"] / 2) is (shape != "qwen3.5-4b")
    assert result["caches_mb"] > 1000 and result["workspace_mb"] > 50
