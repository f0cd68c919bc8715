"""web/dist, built once, and the demo model in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from web_package import built_web


@pytest.fixture(scope="session")
def web() -> Path:
    """web/, with everything built."""
    return built_web()


@pytest.fixture(scope="session")
def demo_webgpu(compiled_demo: Callable[[str, str], Path]) -> Path:
    """The demo model for target webgpu, in float32."""
    return compiled_demo("q4", "webgpu-f32")
