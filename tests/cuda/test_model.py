"""The demo model compiled for CUDA: generated kernels, host code and TVM's CUDA runtime on the
emulated device, engine and all, against the numpy reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from demo.equality import compare, greedy_tokens
from mlcc.model import Model, open_model
from mlcc_compiler import cuda_build
from mlcc_compiler.checkpoint import Checkpoint
from mlcc_compiler.compile import Options, Progress, compile_model
from mlcc_targets import get_target

from . import emulation

pytestmark = pytest.mark.skipif(bool(emulation.why_not()), reason=emulation.why_not())
DEMO = Path(__file__).parents[2] / "examples" / "demo" / "model"
PROMPTS = ("3 + 4 =", "What is the capital of France?", "Count: one two three", "x")
BOUND = 0.05
"""On logits of order ten: pages and matrix tiles are float16."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: Any) -> dict[str, Model]:
    """The same recipe for the emulated GPU and for numpy."""
    folder, checkpoint = tmp_path_factory.mktemp("models"), Checkpoint.open(DEMO)
    options = Options(quant="q4", context=256, max_batch=4, max_step_tokens=32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_build, "compile_cuda", emulation.compile_cuda)
        for name in ("cuda", "reference"):
            compile_model(checkpoint, get_target(name), folder / name, options, Progress())
    return {name: open_model(folder / name) for name in ("cuda", "reference")}


def test_answers_equal_the_reference(models: dict[str, Model]) -> None:
    gpu, reference = models["cuda"], models["reference"]
    prompts = [gpu.text.encode_prompt(prompt) for prompt in PROMPTS]
    before = emulation.device().emulated_launches()
    answers = greedy_tokens(gpu, prompts, 8)
    assert emulation.device().emulated_launches() > before
    expected = greedy_tokens(reference, prompts, 8)
    ties = sum(
        compare(reference, *row, BOUND) for row in zip(prompts, answers, expected, strict=True)
    )
    assert ties <= 1
