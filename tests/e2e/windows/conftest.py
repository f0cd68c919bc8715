"""mlcc on a Windows Python under wine: its executor and the demo model's library, built here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers import needs
from tests.helpers.demo_model import DEMO
from tools import windows_python
from tools.windows_python import windows_path

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "runtime" / "native" / "build_executor.py"
EXECUTOR = "libmlcc_executor.pyd"


@pytest.fixture(scope="session")
def windows_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mlcc as a wheel for Windows has it."""
    needs.require("wine")
    folder = tmp_path_factory.mktemp("windows")
    for package in ("runtime/mlcc", "targets/mlcc_targets"):
        without = shutil.ignore_patterns("lib", "__pycache__")
        shutil.copytree(ROOT / package, folder / Path(package).name, ignore=without)
    made = folder / "mlcc" / "device" / "lib" / EXECUTOR
    subprocess.run([sys.executable, str(BUILD), "windows", str(made)], check=True)
    windows_python.use(folder)
    return folder


@pytest.fixture(scope="session")
def windows_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model for Windows, in a folder with a space and an umlaut."""
    folder = tmp_path_factory.mktemp("models") / "ein Gerät"
    row = get_target("cpu", Choices(cpu="x86-64", systems=("windows",)))
    checkpoint = Checkpoint.open(DEMO / "model")
    options = Options(quant="q4_g32", context=256)
    return compile_model(checkpoint, row, folder, options, Progress())


@contextmanager
def screen() -> Iterator[str]:
    """A display: without one wine loads no driver of a GPU."""
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "640x480x24", "-nolisten", "tcp"]
    with subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL) as process:
        os.close(write)
        try:
            with os.fdopen(read, encoding="utf-8") as numbers:
                yield f":{numbers.readline().strip()}"
        finally:
            process.terminate()


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The URL of `mlcc serve` under wine, and its process."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = ["-m", "mlcc", "serve", windows_path(folder), "--port", str(port), *options]
    process = subprocess.Popen(
        windows_python.command(words),
        env=windows_python.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/ready", process)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.communicate()


def wait_for(url: str, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    """Returns once the URL answers. Fails if the process ends before."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                text = process.communicate()[0].decode(errors="replace")
                pytest.fail(f"the server does not start: {text}")
            time.sleep(0.1)


_NOT_STARTED = "[WinError 1359]"
"""How wine reports a program that ended while wine started it: an earlier Ctrl-C may reach it on a
slow machine."""


def run(*words: str, seconds: float = 120, display: str = "", stdin: str = "") -> str:
    """What Windows' Python prints. Fails if it ends with an error."""
    returncode, text = _run(words, seconds, display, stdin)
    if returncode and _NOT_STARTED in text:
        returncode, text = _run(words, seconds, display, stdin)
    assert returncode == 0, text
    return text


def _run(words: tuple[str, ...], seconds: float, display: str, stdin: str) -> tuple[int, str]:
    """The exit code, and what it prints."""
    done = subprocess.run(
        windows_python.command(words),
        env={**windows_python.environment(), "DISPLAY": display},
        input=stdin.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")
