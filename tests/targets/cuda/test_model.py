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
from mlcc_compiler.quantization.schemes import E2M1
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


def to_fp8(weight: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """With a scale for 128 x 128, as DeepSeek and Qwen publish them; the tensors by their suffixes,
    and the values."""
    n, k = (size // 128 for size in weight.shape)
    scales = np.abs(weight).reshape(n, 128, k, 128).max(axis=(1, 3)) / 448
    spread = np.kron(scales, np.ones((128, 128), np.float32))
    codes = (weight / spread).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": codes, "weight_scale_inv": scales}, codes.astype(np.float32) * spread


def to_nvfp4(weight: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """As NVIDIA publishes it."""
    groups, table = weight.reshape(len(weight), -1, 16), np.asarray(E2M1, np.float32)
    factor = np.float32(np.abs(weight).max() / 6 / 448)
    scales = (np.abs(groups).max(axis=2) / 6 / factor).astype(ml_dtypes.float8_e4m3fn)
    spread = (scales.astype(np.float32) * factor)[:, :, None]
    codes = np.abs(groups[..., None] / spread[..., None] - table).argmin(axis=-1)
    values, codes = (table[codes] * spread).reshape(weight.shape), codes.reshape(weight.shape)
    pairs = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    return {"weight": pairs, "weight_scale": scales, "weight_scale_2": np.array(factor)}, values


@pytest.mark.long
@pytest.mark.parametrize(
    ("scheme", "pack", "config", "bits"),
    [
        pytest.param(
            "e4m3_g128",
            to_fp8,
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            None,
            marks=pytest.mark.feature("fp8-kept", "cuda", "compiles"),
        ),
        pytest.param(
            "e4m3_g128",
            to_fp8,
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            8,
            marks=pytest.mark.feature("fp8-activations", "cuda", "compiles"),
        ),
        pytest.param(
            "nvfp4",
            to_nvfp4,
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            None,
            marks=pytest.mark.feature("nvfp4-kept", "cuda", "compiles"),
        ),
    ],
)
def test_small_floats_are_kept(
    scheme: str,
    pack: Any,
    config: Any,
    bits: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against the same values as floats; bits: of activations, whose rounding to 8 bits is 2 % of
    the logits' spread here."""
    emulation.replace_nvcc(monkeypatch)
    floats, small = (shutil.copytree(DEMO, tmp_path / name) for name in ("floats", "small"))
    tensors: dict[str, Any] = load_file(DEMO / "model.safetensors")
    values = dict(tensors)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        parts, values[name] = pack(np.asarray(tensors[name], np.float32))
        tensors |= {name.replace("weight", part): array for part, array in parts.items()}
    save_file(values, floats / "model.safetensors")
    save_file(tensors, small / "model.safetensors")
    whole = json.loads((DEMO / "config.json").read_text()) | {"quantization_config": config}
    (small / "config.json").write_text(json.dumps(whole))
    models = []
    for target, folder, quant in (("cuda", small, "keep"), ("reference", floats, "f32")):
        rounding = bits if target == "cuda" else None
        options = Options(
            quant=quant, context=256, max_batch=4, max_step_tokens=32, activations=rounding
        )
        made = tmp_path / target
        compile_model(Checkpoint.open(folder), get_target(target), made, options, Progress())
        models.append(open_model(made))
    gpu, reference = models
    manifest = json.loads((tmp_path / "cuda" / "mlcc.json").read_text())
    assert scheme in json.dumps(manifest)
    assert manifest["quantization"]["options"].get("activation_bits") == bits
    prompts = [gpu.text.encode_prompt(prompt) for prompt in PROMPTS]
    answers, expected = (greedy_tokens(model, prompts, 8) for model in models)
    rows = zip(prompts, answers, expected, strict=True)
    bound = BOUND if bits is None else 10 * BOUND
    assert sum(compare(reference, *row, bound) for row in rows) <= 1
