"""The scripted server that all clients share, and the recorded outcomes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients import table

PROGRAM = Path(__file__).with_name("scripted_server.py")
WRITE = "MLCC_WRITE_CLIENTS"
"""In the environment: write docs/clients.md when all are done."""
outcomes: dict[tuple[str, str], str] = {}


@pytest.fixture(scope="session")
def scripted() -> Iterator[str]:
    """The address of a server with the scripted model."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout
    try:
        url = process.stdout.readline().strip()
        assert url, "the server did not start; its words are above"
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = (yield).get_result()
    mark = item.get_closest_marker("client")
    if mark and (report.when == "call" or not report.passed):
        outcomes[mark.args] = report.outcome


def pytest_sessionfinish() -> None:
    if os.environ.get(WRITE):
        table.write(outcomes)
