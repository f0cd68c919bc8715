"""Models shared by the tests of ranks, as each takes seconds to compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.commands.tiny_checkpoint import write_checkpoint
from tests.runtime.tensor_parallel.split_models import checkpoint, compiled


@pytest.fixture(scope="session")
def llama(tmp_path_factory: Any) -> tuple[Any, Path]:
    """(transformers' model, its artifact for two ranks)."""
    folder = tmp_path_factory.mktemp("ranks-llama") / "model"
    oracle = checkpoint("llama", folder)
    return oracle, compiled(folder, 2)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: Any) -> Path:
    """A checkpoint with a tokenizer."""
    return write_checkpoint(tmp_path_factory.mktemp("ranks-tiny") / "model")


@pytest.fixture(scope="session")
def tiny_artifact(tiny: Path) -> Path:
    """A model of two ranks, calibrated for the sizes of inputs."""
    return compiled(tiny, 2, quant="q4")
