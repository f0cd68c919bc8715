"""A runner for the chosen vectors, and the API key that it sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.conformance.helpers.client import Client
from tests.e2e.conformance.runner import Runner

API_KEY = "sesame"


@contextmanager
def running(request: pytest.FixtureRequest, url: str) -> Iterator[Runner]:
    """Runs the vectors of the tests that ask for the requesting fixture, as far as selected."""
    items: list[Any] = request.session.items
    chosen = [
        item.callspec.params["vector"]
        for item in items
        if item.path == request.path and request.fixturename in item.fixturenames
    ]
    client = Client(url, API_KEY)
    runner = Runner(client, chosen)
    try:
        yield runner
    finally:
        runner.close()
        client.close()
