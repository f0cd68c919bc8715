"""The Containerfile's instructions, run one after the other in a fresh Debian, and the result: a
server that runs as another user, with a read-only folder of models."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.deploy.containerfile import Image, stage

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "Containerfile"
PATIENCE = 120.0
"""Seconds; so that a server that does not come ends the test."""


def test_stages_have_what_they_are_from() -> None:
    suite, slim = stage(FILE, "slim")
    assert suite == "bookworm"
    base = stage(FILE, "base")[1]
    assert slim[: len(base)] == base
    assert [instruction for instruction, _ in slim[len(base) :]] == ["RUN", "USER", "WORKDIR"]


@pytest.fixture
def image(request: pytest.FixtureRequest, tmp_path: Path, web: Path) -> Iterator[Image]:
    """The image of a stage, made of this clone's wheels, as `dev.py wheel` makes them."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the image is built in a chroot")
    dist = tmp_path / "context" / "dist"
    subprocess.run([sys.executable, "-m", "mlcc_targets.wasm.build"], check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", dist, ROOT, web / "wheel"], check=True)
    suite, steps = stage(FILE, request.param)
    made = Image(tmp_path / "root", tmp_path / "context")
    try:
        made.fill(suite)
        made.obey(steps)
        yield made
    finally:
        made.leave()
        shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.long  # installs a Debian and the wheels in it
@pytest.mark.needs("debootstrap")
@pytest.mark.parametrize("image", ["slim"], indirect=True)
def test_the_slim_image_serves(image: Image, compiled_demo: Callable[[str, str], Path]) -> None:
    result = image.run(["mlcc", "--version"])
    assert result.returncode == 0, result.stderr
    assert image.run(["id", "-u"]).stdout.strip() == "10001"
    refused = image.run(["mlcc", "run", "/models/absent", "hello"])
    assert refused.returncode == 2
    put(compiled_demo("q8", "cpu"), image)
    answers(image, image.command)


@pytest.mark.long
@pytest.mark.needs("debootstrap")
@pytest.mark.parametrize("image", ["ray"], indirect=True)
def test_the_ray_image_has_what_kuberay_runs(image: Image) -> None:
    """The image has the programs that KubeRay runs in its pods and for health checks."""
    for words in (["bash", "-c", "ulimit -n"], ["wget", "--version"], ["ray", "--version"]):
        result = image.run(words)
        assert result.returncode == 0, result.stderr


def answers(image: Image, command: list[str]) -> None:
    """The image serves: /health is 200 and a request is answered."""
    with subprocess.Popen(image.words([*image.entry, *command])) as server:
        try:
            until = time.monotonic() + PATIENCE
            while image.run(image.health).returncode != 0:
                assert server.poll() is None and time.monotonic() < until
                time.sleep(0.5)
            assert "42" in ask("What is 17 + 25?")
        finally:
            server.terminate()
            server.wait(PATIENCE)


@pytest.mark.long  # and the compilers of all targets
@pytest.mark.needs("debootstrap")
@pytest.mark.parametrize("image", ["compile"], indirect=True)
def test_the_compile_image_answers_with_a_checkpoint(image: Image) -> None:
    """The server compiles a checkpoint first, as another user, into its cache."""
    put(ROOT / "examples" / "demo" / "model", image)
    assert image.run(["id", "-u"]).stdout.strip() == "10001"
    result = image.run(["mlcc", "run", "/models/demo", "What is 17 + 25?", "--max-tokens", "20"])
    assert result.returncode == 0, result.stderr
    assert "42" in result.stdout and "compiling it once" in result.stderr
    again = image.run(["mlcc", "run", "/models/demo", "What is 17 + 25?", "--max-tokens", "20"])
    assert again.stdout == result.stdout and "compiling it once" not in again.stderr


def put(model: Path, image: Image) -> None:
    """Write a model into the image's folder of models, readable by all users."""
    shutil.copytree(model, image.root / "models" / "demo")
    for path in (image.root / "models").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def ask(question: str) -> str:
    body = {"model": "demo", "messages": [{"role": "user", "content": question}], "max_tokens": 20}
    request = urllib.request.Request(
        "http://127.0.0.1:8000/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        text: str = json.load(answer)["choices"][0]["message"]["content"]
    return text
