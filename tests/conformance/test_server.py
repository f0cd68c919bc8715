"""Every vector against `mlcc serve` on the CPU."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conftest import API_KEY, running
from conformance.runner import Runner
from conformance.vectors import Vector, load
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.plan import Options
from mlcc_targets import Choices, get_target

DEMO = Path(__file__).parents[2] / "examples" / "demo" / "model"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("conformance") / "cpu"
    options = Options(quant="f32", context=1024)
    return compile_model(
        Checkpoint.open(DEMO), get_target("cpu", Choices()), out, options, Progress()
    )


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


@pytest.mark.parametrize("vector", [v for v in load() if v.fits("server")], ids=lambda v: v.id)
def test_server(runner: Runner, vector: Vector) -> None:
    runner.result(vector)
