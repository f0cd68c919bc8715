"""The demo model compiled for Metal: generated kernels, host code and TVM's runtime on the emulated
device, engine and all, against the numpy reference."""

from __future__ import annotations

from pathlib import Path

from mlcc.loader import open_model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.e2e.demo.equality import compare, greedy_tokens
from tests.targets.metal import emulation

DEMO = Path(__file__).parents[3] / "examples" / "demo" / "model"
PROMPTS = ("3 + 4 =", "What is the capital of France?", "Count: one two three", "x")
BOUND = 0.05
"""On logits of order ten: pages are float16."""


def test_answers_equal_the_reference(tmp_path: Path, emulated: None) -> None:
    options = Options(quant="q4", context=256, max_batch=4, max_step_tokens=32)
    for row in (emulation.row(), get_target("reference")):
        checkpoint = Checkpoint.open(DEMO)
        compile_model(checkpoint, row, tmp_path / row.name, options, Progress())
    metal, reference = (open_model(tmp_path / name) for name in ("metal", "reference"))
    prompts = [metal.text.encode_prompt(prompt) for prompt in PROMPTS]
    before = emulation.device().emulated_launches()
    answers = greedy_tokens(metal, prompts, 8)
    assert emulation.device().emulated_launches() > before
    expected = greedy_tokens(reference, prompts, 8)
    ties = sum(
        compare(reference, *row, BOUND) for row in zip(prompts, answers, expected, strict=True)
    )
    assert ties <= 1
