"""Quantized and 16-bit libraries against numpy on the same rounded weights, all recipes.

The reference computes with weights rounded by the scheme; the remaining difference is the kernels'
own rounding: activations to int8 by group, and pages to float16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlcc.artifact.folder import Artifact
from mlcc.device.reference import ops
from mlcc.loader import open_executor
from mlcc_compiler.artifact import package
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.helpers.batches import PagedSequences

# Largest error of any logit, in units of the logits' standard deviation.
FLOAT_BOUNDS = {"f32": 1e-4, "f16": 0.01, "bf16": 0.01}
INTEGER = ("q8", "q8a", "q3", "q4", "q5", "q6", "q4a", "q4_g16")
GPU_RECIPES = ("f16", "bf16", "q8", "q8a", "q3", "q5", "q6", "q4a")
"""f32 and q4: `tests/e2e/demo/test_demo_vulkan.py`."""
GPU_BOUND = 0.01
"""A GPU's kernels take inputs as they are; pages and tiles of matrices are float16."""
Exact = Callable[[str], Any]
"""Recipe -> logits of the reference."""


def proves(quant: str, *targets: str) -> Any:
    """A recipe as a parameter whose test shows that these targets run it."""
    parts = [quant.partition("_")[0], *(["f16-kv"] if quant != "f32" else [])]
    where = [(p, t) for p in parts for t in targets if (p, t) != ("f16-kv", "reference")]
    return pytest.param(quant, marks=[pytest.mark.feature(p, t, "runs") for p, t in where])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Checkpoint:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_checkpoint("llama", folder)
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    return Checkpoint.open(folder)


def compiled(
    checkpoint: Checkpoint, target: str, quant: str, folder: Path, activations: int | None = None
) -> Path:
    options = Options(quant=quant, context=64, max_batch=8, activations=activations)
    return compile_model(checkpoint, get_target(target), folder / target, options, Progress())


def logits(artifact: Path) -> Any:
    """Logits of two sequences fed in chunks, through a reopened artifact."""
    executor = open_executor(Artifact.open(artifact))
    rng = np.random.default_rng(3)
    paged = PagedSequences(executor, [rng.integers(3, 131, n).tolist() for n in (24, 9)])
    paged.step({0: 8})
    paged.step({0: 3, 1: 5})
    paged.step({0: 5, 1: 3})
    while paged.done[0] < 24:
        paged.step({0: 1, 1: 1} if paged.done[1] < 9 else {0: 1})
    return np.concatenate([paged.result(0), paged.result(1)])


@pytest.fixture(scope="module")
def reference(
    checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A recipe's artifact for the reference, compiled once for all targets that are compared."""
    folder = tmp_path_factory.mktemp("reference")
    return cache(lambda quant: compiled(checkpoint, "reference", quant, folder / quant))


@pytest.fixture(scope="module")
def exact(reference: Callable[[str], Path]) -> Exact:
    return cache(lambda quant: logits(reference(quant)))


@pytest.mark.parametrize("quant", [proves(q, "cpu", "reference") for q in FLOAT_BOUNDS])
def test_float_weights_agree_with_reference(
    checkpoint: Checkpoint, quant: str, exact: Exact, tmp_path: Path
) -> None:
    expected = exact(quant)
    as_they_are = 16 if quant == "bf16" else None  # else there are CPUs that round them to bf16
    found = logits(compiled(checkpoint, "cpu", quant, tmp_path, as_they_are))
    assert expected.std() >= 1
    assert np.abs(found - expected).max() / expected.std() < FLOAT_BOUNDS[quant]


def linear_of_rounded_rows(x: Any, weight: Any, bias: Any = None) -> Any:
    """A product as the integer kernels compute it: each group of 32 inputs rounded to 127 steps a
    side."""
    groups = x.reshape(len(x), -1, 32)
    steps = np.abs(groups).max(axis=-1, keepdims=True) / 127
    rounded = np.rint(groups / np.where(steps == 0, 1, steps)) * steps
    return rounded.reshape(x.shape) @ weight.T


def linear_of_bf16_rows(x: Any, weight: Any, bias: Any = None) -> Any:
    """A product as VDPBF16PS computes it, on CPUs that have it."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float32) @ weight.T


def test_bf16_weights_err_no_more_than_inputs_of_bf16(
    checkpoint: Checkpoint,
    reference: Callable[[str], Path],
    exact: Exact,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected, found = exact("bf16"), logits(compiled(checkpoint, "cpu", "bf16", tmp_path))
    monkeypatch.setattr(ops, "linear", linear_of_bf16_rows)
    rounded = logits(reference("bf16"))
    allowed = np.sqrt(np.mean((rounded - expected) ** 2))
    assert np.sqrt(np.mean((found - expected) ** 2)) < 1.25 * allowed
    assert 0 < allowed < 0.02 * expected.std()


@pytest.mark.parametrize("quant", [proves(q, "cpu", "reference") for q in INTEGER])
def test_integer_weights_err_no_more_than_rounded_inputs(
    checkpoint: Checkpoint,
    quant: str,
    reference: Callable[[str], Path],
    exact: Exact,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rounding is chaotic in the single logit, so the error's size is compared, not its value."""
    expected, found = exact(quant), logits(compiled(checkpoint, "cpu", quant, tmp_path))
    monkeypatch.setattr(ops, "linear", linear_of_rounded_rows)
    rounded = logits(reference(quant))
    allowed = np.sqrt(np.mean((rounded - expected) ** 2))
    assert np.sqrt(np.mean((found - expected) ** 2)) < 1.25 * allowed
    assert 0 < allowed < 0.05 * expected.std()


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize("quant", [proves(q, "vulkan") for q in GPU_RECIPES])
def test_vulkan_agrees_with_reference(
    checkpoint: Checkpoint, quant: str, exact: Exact, tmp_path: Path, record_property: Any
) -> None:
    expected = exact(quant)
    found = logits(compiled(checkpoint, "vulkan", quant, tmp_path))
    error = np.abs(found - expected).max() / expected.std()
    record_property("max_error", float(error))
    assert error < GPU_BOUND


@pytest.mark.parametrize(("quant", "target"), [("q4", "cpu"), ("f32", "cpu"), ("q8", "reference")])
def test_the_disk_is_checked_for_what_will_be_written(
    checkpoint: Checkpoint, quant: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimates: list[int] = []
    monkeypatch.setattr(package, "check_space", lambda out, needed, where: estimates.append(needed))
    options = Options(quant=quant, context=64)
    out = compile_model(checkpoint, get_target(target), tmp_path / "out", options, Progress())
    written = sum(path.stat().st_size for path in out.glob("*.safetensors"))
    assert 0.7 < estimates[0] / written < 1.05  # tiny matrices are padded, and headers weigh
