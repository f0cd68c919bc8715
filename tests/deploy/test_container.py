"""The Containerfile's steps, made one after the other in a Debian of their own, and what comes of
them: a server that answers as another user, from a read-only folder of models."""

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
from deploy.containerfile import Image, stage

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Containerfile"
PATIENCE = 120.0
"""Seconds; so that a server that does not come ends the test."""


def test_stages_have_what_they_are_from() -> None:
    suite, slim = stage(FILE, "slim")
    assert suite == "bookworm"
    base = stage(FILE, "base")[1]
    assert slim[: len(base)] == base
    assert [instruction for instruction, _ in slim[len(base) :]] == ["RUN", "USER", "WORKDIR"]


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The slim image, made of this clone's wheels."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it is made by chroot")
    folder = tmp_path_factory.mktemp("container")
    dist = folder / "context" / "dist"
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", dist, ROOT, ROOT / "web" / "wheel"], check=True)
    suite, steps = stage(FILE, "slim")
    image = Image(folder / "root", folder / "context")
    try:
        image.fill(suite)
        image.obey(steps)
        yield image
    finally:
        image.leave()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long  # installs a Debian and the wheels in it
@pytest.mark.needs("debootstrap")
def test_the_slim_image_serves(slim: Image, compiled_demo: Callable[[str, str], Path]) -> None:
    said = slim.run(["mlcc", "--version"])
    assert said.returncode == 0, said.stderr
    assert slim.run(["id", "-u"]).stdout.strip() == "10001"
    refused = slim.run(["mlcc", "run", "/models/absent", "hello"])
    assert refused.returncode == 2
    shutil.copytree(compiled_demo("q8", "cpu"), slim.root / "models" / "demo")
    for path in (slim.root / "models").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with subprocess.Popen(slim.words([*slim.entry, *slim.command])) as server:
        try:
            until = time.monotonic() + PATIENCE
            while slim.run(slim.health).returncode != 0:
                assert server.poll() is None and time.monotonic() < until
                time.sleep(0.5)
            assert "42" in ask("What is 17 + 25?")
        finally:
            server.terminate()
            server.wait(PATIENCE)


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
