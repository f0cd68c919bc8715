"""The executor's library, and the demo model for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlcc.device import executor_library


@pytest.fixture(scope="session")
def built() -> None:
    """libmlcc_executor is there; whatever this machine lacks for it is a failure."""
    assert not executor_library.why_absent(), executor_library.why_absent()


@pytest.fixture(scope="session")
def demo(built: None, compiled_demo: Callable[[str, str], Path]) -> Path:
    """The artifact of the demo model, q4."""
    return compiled_demo("q4", "cpu")
