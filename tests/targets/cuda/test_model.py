"""The demo model compiled for CUDA: generated kernels, host code and TVM's CUDA runtime on the
emulated device, engine and all, against the numpy reference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

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


@pytest.mark.long
@pytest.mark.feature("fp8-kept", "cuda", "compiles")
def test_8_bit_floats_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a scale for 128 x 128, as DeepSeek and Qwen publish them, against the same values as
    floats."""
    emulation.replace_nvcc(monkeypatch)
    floats, eights = (shutil.copytree(DEMO, tmp_path / name) for name in ("floats", "eights"))
    tensors: dict[str, Any] = load_file(DEMO / "model.safetensors")
    values = dict(tensors)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = np.asarray(tensors[name], np.float32)
        n, k = (size // 128 for size in weight.shape)
        scales = np.abs(weight).reshape(n, 128, k, 128).max(axis=(1, 3)) / 448
        spread = np.kron(scales, np.ones((128, 128), np.float32))
        tensors[name] = (weight / spread).astype(ml_dtypes.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scales
        values[name] = tensors[name].astype(np.float32) * spread
    save_file(values, floats / "model.safetensors")
    save_file(tensors, eights / "model.safetensors")
    config = json.loads((DEMO / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (eights / "config.json").write_text(json.dumps(config))
    models = []
    for target, folder, quant in (("cuda", eights, "keep"), ("reference", floats, "f32")):
        options = Options(quant=quant, context=256, max_batch=4, max_step_tokens=32)
        made = tmp_path / target
        compile_model(Checkpoint.open(folder), get_target(target), made, options, Progress())
        models.append(open_model(made))
    gpu, reference = models
    assert "e4m3_g128" in (tmp_path / "cuda" / "mlcc.json").read_text()
    prompts = [gpu.text.encode_prompt(prompt) for prompt in PROMPTS]
    answers, expected = (greedy_tokens(model, prompts, 8) for model in models)
    rows = zip(prompts, answers, expected, strict=True)
    assert sum(compare(reference, *row, BOUND) for row in rows) <= 1
