"""The executor's library, and the demo model compiled for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcc.util import executor_library as library

DEMO = "MLCC_TEST_DEMO"
"""Environment variable of child processes: the artifact's folder."""

DEMO_VULKAN = "MLCC_TEST_DEMO_VULKAN"
"""Environment variable of child processes: the folder of the artifact for target vulkan."""

NATIVE = Path(__file__).parents[3] / "runtime" / "native"


@pytest.fixture(scope="session")
def build() -> Any:
    """The module that builds the library and has its path."""
    sys.path.insert(0, str(NATIVE))
    try:
        import build_executor
    finally:
        sys.path.remove(str(NATIVE))
    return build_executor


@pytest.fixture(scope="session")
def built() -> None:
    """Require libmlcc_executor; anything that this machine lacks for it is a failure."""
    assert not library.why_absent(), library.why_absent()


@pytest.fixture(scope="session")
def demo(built: None, compiled_demo: Callable[[str, str], Path]) -> Path:
    """The artifact of the demo model, q4."""
    return Path(os.environ.get(DEMO) or compiled_demo("q4", "cpu"))
