"""The wheel for Linux on arm64, installed by pip from a release's index and run: under qemu."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from mlcc.util.machine import machine
from mlcc.version import __version__
from tests.helpers import demo_model, local_index
from tests.helpers.emulators.arm64_python import arm64_python

pytestmark = [
    pytest.mark.long,  # compiles the executor by zig, and emulates pip
    pytest.mark.needs("qemu"),
    pytest.mark.skipif(machine() != "x86_64", reason="emulates arm64 on x86-64"),
]
SERVE = """\
import os, sys
sys.executable = os.environ["EMULATED_PYTHON"]
from mlcc.cli import main
main()
"""
"""The server starts processes of its Python, which the emulator must start."""
QUESTION, ANSWER = "What is 17 + 25?", "17 + 25 = 42"


@dataclass(frozen=True)
class Emulated:
    """Debian's Python for arm64, with the packages of a folder and no others."""

    site: Path

    def command(self, *words: object) -> list[str]:
        root = arm64_python()
        python = root / "usr/bin/python3.11"
        return ["qemu-aarch64", "-cpu", "max", "-L", str(root), str(python), *map(str, words)]

    def environment(self, *more: Path) -> dict[str, str]:
        home = {"PYTHONHOME": str(arm64_python() / "usr"), "HOME": str(self.site.parent)}
        home |= {"EMULATED_PYTHON": str(self._program())}
        return {**os.environ, **home, "PYTHONPATH": ":".join(map(str, (self.site, *more)))}

    def _program(self) -> Path:
        """A file that is a Python for programs that start others by its path."""
        made = self.site.with_name("python")
        if not made.exists():
            words = " ".join(map(shlex.quote, self.command()))
            made.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
            made.chmod(0o755)
        return made

    def run(self, *words: object, more: tuple[Path, ...] = ()) -> str:
        done = subprocess.run(
            self.command(*words),
            env=self.environment(*more),
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """`pip install mlcc[serve]`, from the index."""
    folder = tmp_path_factory.mktemp("arm64")
    environment = {**os.environ, "MLCC_WHEEL_MACHINE": "aarch64"}
    wheel = local_index.make(folder, environment)
    assert wheel.name.endswith("_aarch64.whl")
    machine = Emulated(folder / "site")
    machine.site.mkdir()
    spec = find_spec("pip")
    assert spec is not None and spec.origin is not None
    pip = folder / "pip"  # which Debian's Python lacks; it is the same for all
    shutil.copytree(Path(spec.origin).parent, pip / "pip")
    index = f"file://{wheel.parent}/simple"
    words = ("install", "-q", "--no-compile", "--target", machine.site, "--extra-index-url", index)
    machine.run("-m", "pip", *words, f"mlcc[serve]=={__version__}", more=(pip,))
    return machine


def test_it_answers(installed: Emulated) -> None:
    """With the folder that also has libraries for x86-64, Windows and macOS."""
    model = demo_model.for_all_desktops()
    assert f"version {__version__}" in installed.run("-m", "mlcc", "--version")
    assert ANSWER in installed.run("-m", "mlcc", "run", model, QUESTION).splitlines()


def test_it_serves(installed: Emulated) -> None:
    model = demo_model.for_all_desktops()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = installed.command("-c", SERVE, "serve", model, "--port", port)
    with subprocess.Popen(command, env=installed.environment()) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            _until(lambda: _answers(f"{url}/ready"), server)
            body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
            kind = {"content-type": "application/json"}
            where = f"{url}/v1/chat/completions"
            request = urllib.request.Request(where, json.dumps(body).encode(), kind)
            with urllib.request.urlopen(request, timeout=300) as answer:
                assert json.load(answer)["choices"][0]["message"]["content"] == ANSWER
            with urllib.request.urlopen(url, timeout=300) as page:
                assert b"<title>" in page.read()
        finally:
            server.terminate()
            server.wait(120)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30):
            return True
    except OSError:
        return False


def _until(is_so: Callable[[], bool], server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 600
    while not is_so():
        assert server.poll() is None and time.monotonic() < end
        time.sleep(0.5)
