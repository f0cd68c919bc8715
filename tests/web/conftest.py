"""web/dist, built once; the demo model, compiled once for all tests of the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from web_package import built_web, compile_demo


@pytest.fixture(scope="session")
def web() -> Path:
    """web/, with everything built."""
    return built_web()


@pytest.fixture(scope="session")
def demo_webgpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model for target webgpu, in float32."""
    return compile_demo(tmp_path_factory.mktemp("webgpu") / "demo")
