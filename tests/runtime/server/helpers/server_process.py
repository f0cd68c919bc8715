"""Starts the toy server as a program and stops it; shared by the server's tests."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""`verify` of requests over plain HTTP: httpx else reads all authorities for each, 25 ms."""
PROGRAM = Path(__file__).with_name("toy_server.py")
SCRIPTED = Path(__file__).parents[3] / "e2e" / "clients" / "scripted_server.py"
"""Its model reasons and calls tools on request (`tests/e2e/clients/scripted.py`)."""


@dataclass
class RunningServer:
    url: str
    process: subprocess.Popen[str]

    def children(self) -> list[int]:
        """Processes that it started, by id; read from Linux, as a bare Debian has no ps."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                parent = stat.read_text().rpartition(") ")[2].split()[1]  # after the name: state
                found += [int(stat.parent.name)] if int(parent) == self.process.pid else []
        return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(check: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return False


def engine_stats(server: RunningServer) -> dict[str, Any]:
    return dict(httpx.get(f"{server.url}/health").json()["engine"])


def idle(server: RunningServer) -> bool:
    stats = engine_stats(server)
    return stats["running"] == stats["waiting"] == 0 and stats["pages_free"] == stats["pages"]


@contextmanager
def serving_models(*words: str) -> Iterator[RunningServer]:
    """`mlcc serve` with these models and options."""
    command = [sys.executable, "-m", "mlcc", "serve", *words, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found
        yield RunningServer(found[0], process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextmanager
def running(*options: str, program: Path = PROGRAM) -> Iterator[RunningServer]:
    process = subprocess.Popen(
        [sys.executable, str(program), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout
    try:
        url = process.stdout.readline().strip()
        assert url, f"{process.stderr.read() if process.stderr else ''}, exit {process.wait()}"
        yield RunningServer(url, process)
    finally:
        process.terminate()
        process.communicate(timeout=60)
