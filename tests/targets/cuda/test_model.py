"""The demo model compiled for CUDA: generated kernels, host code and TVM's CUDA runtime on the
emulated device, engine and all, against the numpy reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcc.loader import open_model
from mlcc.model.model import Model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.e2e.demo.equality import compare, greedy_tokens
from tests.targets.cuda import emulation
from tests.targets.cuda.conftest import DEMO

pytestmark = pytest.mark.usefixtures("emulated")
PROMPTS = ("3 + 4 =", "What is the capital of France?", "Count: one two three", "x")
BOUND = 0.05
"""On logits of order ten: pages and matrix tiles are float16."""


def test_answers_equal_the_reference(demo_models: dict[str, Model]) -> None:
    gpu, reference = demo_models["cuda"], demo_models["reference"]
    prompts = [gpu.text.encode_prompt(prompt) for prompt in PROMPTS]
    before = emulation.device().emulated_launches()
    answers = greedy_tokens(gpu, prompts, 8)
    assert emulation.device().emulated_launches() > before
    expected = greedy_tokens(reference, prompts, 8)
    ties = sum(
        compare(reference, *row, BOUND) for row in zip(prompts, answers, expected, strict=True)
    )
    assert ties <= 1


@pytest.mark.parametrize("name", ["cuda", "eager"])
def test_steps_that_sample_nothing(demo_models: dict[str, Model], name: str) -> None:
    """A prompt of several steps: but for the last, tensors of no rows, whose memory is null."""
    gpu, reference = demo_models[name], demo_models["reference"]
    prompt = gpu.text.encode_prompt("one two three four five six seven eight nine ten " * 4)
    assert len(prompt) > 2 * gpu.executor.capacity.max_step_tokens
    (answer,), (expected,) = (greedy_tokens(model, [prompt], 3) for model in (gpu, reference))
    assert compare(reference, prompt, answer, expected, BOUND) <= 1


@pytest.mark.long
def test_a_long_prompt_by_warp_groups(
    demo_models: dict[str, Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For sm_90a, a prompt of more than 128 tokens in one step."""
    emulation.replace_nvcc(monkeypatch)
    options = Options(quant="q4", context=256, max_batch=4, max_step_tokens=160)
    row = get_target("cuda", Choices(archs=("sm_90a",)))
    compile_model(Checkpoint.open(DEMO), row, tmp_path / "model", options, Progress())
    gpu, reference = open_model(tmp_path / "model"), demo_models["reference"]
    prompt = gpu.text.encode_prompt("one two three four five six seven eight nine ten " * 7)
    assert 128 < len(prompt) <= gpu.executor.capacity.max_step_tokens
    (answer,), (expected,) = (greedy_tokens(model, [prompt], 3) for model in (gpu, reference))
    assert compare(reference, prompt, answer, expected, BOUND) <= 1
