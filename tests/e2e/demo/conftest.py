"""The bundled demo model, on the targets that run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from mlcc.loader import open_model
from mlcc.model.model import Model

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


@pytest.fixture(scope="module")
def opened(compiled: Compiled) -> Iterator[Opened]:
    """(recipe, target) -> the model, opened in this process, and closed behind the file's tests:
    others in the process put the GPU's device away."""
    made: list[Model] = []

    def make(quant: str, target: str) -> Model:
        made.append(open_model(compiled(quant, target)))
        return made[-1]

    yield cache(make)
    for model in made:
        model.close()
