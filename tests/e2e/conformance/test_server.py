"""Every vector against `mlcc serve` on the CPU."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conformance.conftest import API_KEY, running
from tests.e2e.conformance.runner import Runner
from tests.e2e.conformance.vectors import Vector, load


@pytest.fixture(scope="module")
def model(compiled_demo: Callable[[str, str], Path]) -> Path:
    return compiled_demo("f32", "cpu")


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest, model: Path) -> Iterator[Runner]:
    options = ["--port", "0", "--api-key", API_KEY]
    command = [sys.executable, "-m", "mlcc", "serve", str(model), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        with running(request, found[0]) as started:
            yield started
    finally:
        process.terminate()
        assert process.wait(timeout=60) in (0, -15, 143)


FEATURES = {
    "anthropic": "anthropic",
    "responses": "responses",
    "scheduling": "scheduling",
    "ollama": "ollama",
    "llamacpp": "llamacpp",
    "tgi": "tgi",
    "tokens": "llamacpp",
}
"""Topics that show a part of the table of features."""


def shown(vector: Vector) -> Any:
    feature = FEATURES.get(vector.topic)
    marks = [pytest.mark.feature(feature, "cpu", "runs")] if feature else []
    return pytest.param(vector, marks=marks, id=vector.id)


@pytest.mark.parametrize("vector", [shown(v) for v in load() if v.fits("server")])
def test_server(runner: Runner, vector: Vector) -> None:
    runner.result(vector)
