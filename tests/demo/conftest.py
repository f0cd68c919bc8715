"""The bundled demo model, compiled once per recipe and target for all tests here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import needs
import pytest

from mlcc.model import Model, open_model
from mlcc_compiler.checkpoint import Checkpoint
from mlcc_compiler.compile import Options, Progress, compile_model
from mlcc_targets import Choices, get_target

DEMO = Path(__file__).parents[2] / "examples" / "demo"
CONTEXT = 1024

Compiled = Callable[[str, str], Path]
Opened = Callable[[str, str], Model]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: Any, request: Any) -> Compiled:
    """(recipe, target) -> the artifact's folder. "vulkan-f32" is vulkan with --no-f16.

    Skips the test that asks for what cannot be compiled or, on Vulkan, run here.
    """

    @cache
    def make(quant: str, target: str) -> Path:
        name, _, f32 = target.partition("-")
        needs.require_target(name)
        if name == "vulkan":
            request.getfixturevalue("vulkan")
        row = get_target(name, Choices(f16=False if f32 else None))
        out = tmp_path_factory.mktemp("demo") / f"{quant}-{target}"
        options = Options(quant=quant, context=CONTEXT)
        checkpoint = Checkpoint.open(DEMO / "model")
        return compile_model(checkpoint, row, out, options, Progress())

    return make


@pytest.fixture(scope="session")
def opened(compiled: Compiled) -> Opened:
    """(recipe, target) -> the model, opened in this process."""
    return cache(lambda quant, target: open_model(compiled(quant, target)))
