"""The demo model compiled for CUDA: generated kernels, host code and TVM's CUDA runtime on the
emulated device, engine and all, against the numpy reference."""

from __future__ import annotations

import pytest

from mlcc.model.model import Model
from tests.e2e.demo.equality import compare, greedy_tokens
from tests.targets.cuda import emulation

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
