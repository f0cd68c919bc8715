"""A model with latent attention compiled for CUDA: on the emulated device, against the numpy
reference."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mlcc.loader import open_model
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.kernels.gpu.attention import mma_latent
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import SMALL, config_of, save_random
from tests.e2e.demo.equality import compare, greedy_tokens
from tests.helpers.letter_tokens import letters
from tests.targets.cuda import emulation

pytestmark = pytest.mark.usefixtures("emulated")
BOUND = 0.05
"""As of the demo model: pages, queries and weights are float16."""
LENGTHS = (3, 20, 75, 33)


def test_answers_equal_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSeek V2 with keys of whole 16 bytes: prompts in chunks, beside decode rows, by `mma`."""
    emulation.replace_nvcc(monkeypatch)
    taken, emit = [], mma_latent.mma_latent

    def recorded(*given: Any) -> None:
        taken.append(given)
        emit(*given)

    monkeypatch.setattr(mma_latent, "mma_latent", recorded)
    source = tmp_path / "source"
    save_random(config_of("deepseek_v2-dense", qk_rope_head_dim=16), source)
    (source / "tokenizer.json").write_text(letters(SMALL["vocab_size"]), encoding="utf-8")
    options = Options(quant="f16", context=128, max_batch=4, max_step_tokens=32)
    models = []
    for name in ("cuda", "reference"):
        target, made = get_target(name), tmp_path / name
        compile_model(Checkpoint.open(source), target, made, options, Progress())
        models.append(open_model(made))
    assert taken
    draw, (gpu, reference) = random.Random(1), models
    prompts = [[draw.randrange(3, SMALL["vocab_size"]) for _ in range(n)] for n in LENGTHS]
    before = emulation.device().emulated_launches()
    answers, expected = (greedy_tokens(model, prompts, 8) for model in models)
    assert emulation.device().emulated_launches() > before
    rows = zip(prompts, answers, expected, strict=True)
    assert sum(compare(reference, *row, BOUND) for row in rows) <= 1
    gpu.close()
