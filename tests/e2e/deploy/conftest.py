"""web/dist, as a release packs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.web_package import built_web


@pytest.fixture(scope="session")
def web() -> Path:
    return built_web()
