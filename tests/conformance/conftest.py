"""The demo model as the vectors want it, and a runner for the vectors that were chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conformance.client import Client
from conformance.runner import Runner
from mlcc_compiler.checkpoint import Checkpoint
from mlcc_compiler.compile import Options, Progress, compile_model
from mlcc_targets import Choices, get_target

DEMO = Path(__file__).parents[2] / "examples" / "demo" / "model"
API_KEY = "sesame"

Compiled = Callable[[str], Path]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """target -> the folder of the demo model in float32, with a context of 1024."""

    @cache
    def make(target: str) -> Path:
        row = get_target(target, Choices(f16=None if target == "cpu" else False))
        out = tmp_path_factory.mktemp("conformance") / target
        options = Options(quant="f32", context=1024)
        return compile_model(Checkpoint.open(DEMO), row, out, options, Progress())

    return make


@contextmanager
def running(request: pytest.FixtureRequest, url: str) -> Iterator[Runner]:
    """Runs the vectors of the requesting module's tests, as far as they were selected."""
    items: list[Any] = [item for item in request.session.items if item.path == request.path]
    chosen = [item.callspec.params["vector"] for item in items if hasattr(item, "callspec")]
    client = Client(url, API_KEY)
    runner = Runner(client, chosen)
    try:
        yield runner
    finally:
        runner.close()
        client.close()
