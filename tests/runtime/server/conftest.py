"""One toy server for all tests that do not change its state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.runtime.server.helpers.server_process import RunningServer, running


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    with running() as started:
        yield started


@pytest.fixture
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made
