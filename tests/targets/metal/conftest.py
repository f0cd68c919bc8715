"""The emulated device as a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.targets.metal import emulation


@pytest.fixture
def emulated() -> Iterator[None]:
    """What a test compiles for Metal is for the emulated device."""
    with emulation.modules():
        yield
    emulation.device().emulated_order(0)
