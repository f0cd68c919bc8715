"""The bundled demo model, on the targets that run here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from mlcc.model.model import Model
from mlcc.opening import open_model

Compiled = Callable[[str, str], Path]
Opened = Callable[[str, str], Model]


@pytest.fixture(scope="session")
def compiled(compiled_demo: Compiled, request: pytest.FixtureRequest) -> Compiled:
    """(recipe, target) -> the artifact's folder. Skips the test where the target cannot run."""

    def make(quant: str, target: str) -> Path:
        if target.startswith("vulkan"):
            request.getfixturevalue("vulkan")
        return compiled_demo(quant, target)

    return make


@pytest.fixture(scope="session")
def opened(compiled: Compiled) -> Opened:
    """(recipe, target) -> the model, opened in this process."""
    return cache(lambda quant, target: open_model(compiled(quant, target)))
