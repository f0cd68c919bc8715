"""`mlcc serve` of a model for browsers: its refusals, and that it serves the page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from mlcc.commands.serve.command import serve_command
from mlcc.errors import MlccError
from mlcc.server import web
from mlcc_targets.wasm.build import cache_folder
from tests.runtime.artifact.small_artifact import make
from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.runtime.server.helpers.small_site import make_model, make_page


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page where a clone would have built it."""
    page = make_page(tmp_path / "page")
    monkeypatch.setattr(web, "_IN_CLONE", page)
    return page


def refusal(*arguments: str) -> str:
    error = CliRunner().invoke(serve_command, arguments).exception
    assert isinstance(error, MlccError), repr(error)
    return error.message


def test_a_model_for_another_target_is_refused(page: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "tiny")
    assert "target 'cpu', which no browser runs" in refusal("x", "--web", str(other))


def test_a_page_and_no_page_are_refused(page: Path, model: Path) -> None:
    assert "leave out --no-page" in refusal("x", "--web", str(model), "--no-page")


@pytest.mark.parametrize(
    "option",
    [
        "--threads 16",
        "--context 16",
        "--max-batch 16",
        "--device 16",
        "--web 16",
        "--parse-special",
        "--no-page",
        "--store answers",
        "--drain 0",
        "--alias x",
        "--lora x=y",
        "--lora-dir .",
        "--root-path /llm",
        "--strict-fields",
        "--cors-origin *",
    ],
)
def test_nothing_is_asked_of_an_engine_that_is_not_here(
    page: Path, model: Path, option: str
) -> None:
    name, *value = option.split()
    assert f"leave out {name}" in refusal(str(model), name, *value)


@pytest.fixture(params=["compiled", "checkpoint"])
def served(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> list[str]:
    """A model for browsers as it is given to `mlcc serve`."""
    if request.param == "compiled":
        return [str(request.getfixturevalue("model"))]
    runtime = cache_folder()  # compiling one takes a minute or two
    runtime.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mlcc").mkdir()
    (tmp_path / "mlcc" / runtime.name).symlink_to(runtime)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return [str(write_checkpoint(tmp_path / "tiny")), "--target", "webgpu", "--context", "64"]


def test_mlcc_serve_of_a_model_for_browsers(page: Path, served: list[str]) -> None:
    """The command as a process: it says where the page is, serves it, and ends politely."""
    code = (
        "import sys; from pathlib import Path; from mlcc.server import web; "
        "web._IN_CLONE = Path(sys.argv.pop(1)); from mlcc.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(page), "serve", *served, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http"))
        assert url.endswith("/web/")
        assert httpx.get(url, timeout=60).content == (page / "index.html").read_bytes()
        assert "library" in httpx.get(f"{url}model/mlcc.json", timeout=60).json()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode in (0, 143, -15)
