"""Models with tensors of different schemes: merged products, rows that no group divides, and
quantized checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from mlcc.artifact.arrays import mapped
from mlcc.artifact.folder import Artifact
from mlcc.loader import open_executor
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_compiler.quantization import Quantized, Recipe, quantize, recipes, scheme
from mlcc_targets import get_target
from tests.compiler.models.helpers.checkpoints import SMALL, make_checkpoint, save_random
from tests.helpers.batches import PagedSequences

MIXED = Recipe(
    "mixed",
    "q4_k",
    "int5_g32",
    "q6_k",
    (
        ("*.v_proj.weight", "q6_k"),
        ("*.up_proj.weight", "int8_g32"),
        ("*.down_proj.weight", "q5_k"),
        ("*.1.self_attn.o_proj.weight", "iq4_xs"),
    ),
)
GPU_BOUND = 0.01
CPU_BOUND = 0.04
"""Of the mean error, in the logits' standard deviation: activations are rounded to 127 steps a
group, which is chaotic in the single logit (`test_quantized.py`). Of one scheme alone, int4 or
int8, it is 0.026 here."""


@pytest.fixture(autouse=True)
def mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(recipes.RECIPES, "mixed", MIXED)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: Any) -> Checkpoint:
    folder = tmp_path_factory.mktemp("llama")
    make_checkpoint("llama", folder)
    return with_tokenizer(folder)


def with_tokenizer(folder: Path) -> Checkpoint:
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    return Checkpoint.open(folder)


def compiled(
    checkpoint: Checkpoint, target: str, quant: str, folder: Path, notes: list[str] | None = None
) -> Artifact:
    progress = Progress(
        decided=lambda what, value: (notes if notes is not None else []).append(value)
    )
    options = Options(quant=quant, context=64, max_batch=8)
    return Artifact.open(
        compile_model(checkpoint, get_target(target), folder / target, options, progress)
    )


def logits(artifact: Artifact) -> Any:
    """Logits of two sequences, fed in chunks and token by token."""
    executor = open_executor(artifact)
    rng = np.random.default_rng(3)
    paged = PagedSequences(executor, [rng.integers(3, 131, n).tolist() for n in (16, 9)])
    paged.step({0: 8})
    paged.step({0: 3, 1: 5})
    paged.step({0: 4, 1: 3})
    paged.step({0: 1, 1: 1})
    return np.concatenate([paged.result(0), paged.result(1)])


def worst(found: Any, expected: Any) -> float:
    assert expected.std() >= 1
    return float(np.abs(found - expected).max() / expected.std())


def mean(found: Any, expected: Any) -> float:
    assert expected.std() >= 1
    return float(np.sqrt(np.mean((found - expected) ** 2)) / expected.std())


@pytest.mark.feature("mixed-schemes", "cpu", "runs")
@pytest.mark.feature("mixed-schemes", "reference", "runs")
def test_mixed_schemes_on_a_cpu(llama: Checkpoint, tmp_path: Path) -> None:
    expected = logits(compiled(llama, "reference", "mixed", tmp_path))
    artifact = compiled(llama, "cpu", "mixed", tmp_path)
    assert mean(logits(artifact), expected) < CPU_BOUND
    names = {tensor.name for tensor in artifact.manifest.weights.tensors}
    assert "model.layers.0.self_attn.v_proj.weight.sub_scales" in names
    assert "model.layers.1.self_attn.o_proj.weight.codes" in names


@pytest.mark.usefixtures("vulkan")
@pytest.mark.feature("mixed-schemes", "vulkan", "runs")
def test_mixed_schemes_on_a_gpu_keep_the_fusions(llama: Checkpoint, tmp_path: Path) -> None:
    expected = logits(compiled(llama, "reference", "mixed", tmp_path))
    artifact = compiled(llama, "vulkan", "mixed", tmp_path)
    assert worst(logits(artifact), expected) < GPU_BOUND
    names = {tensor.name for tensor in artifact.manifest.weights.tensors}
    # q and k are one matrix, and v, of its own scheme, goes to the same output
    assert "model.layers.0.self_attn.q_proj+k_proj.weight.codes" in names


def test_rows_that_no_group_divides_get_smaller_ones(tmp_path: Path) -> None:
    sizes = {"hidden_size": 168, "intermediate_size": 100, "head_dim": 32}
    save_random(transformers.LlamaConfig(**{**SMALL, **sizes}), tmp_path / "model")
    checkpoint, decided = with_tokenizer(tmp_path / "model"), list[str]()
    expected = logits(compiled(checkpoint, "reference", "q4", tmp_path, decided))
    assert mean(logits(compiled(checkpoint, "cpu", "q4", tmp_path)), expected) < CPU_BOUND
    notes = [text for text in decided if "do not divide" in text]
    assert any("rows of 168" in note for note in notes)
    assert any("rows of 100" in note for note in notes)


@pytest.mark.usefixtures("vulkan")
def test_rows_that_no_group_divides_on_a_gpu(tmp_path: Path) -> None:
    sizes = {"hidden_size": 168, "intermediate_size": 100, "head_dim": 32}
    save_random(transformers.LlamaConfig(**{**SMALL, **sizes}), tmp_path / "model")
    checkpoint = with_tokenizer(tmp_path / "model")
    expected = logits(compiled(checkpoint, "reference", "q4", tmp_path))
    assert worst(logits(compiled(checkpoint, "vulkan", "q4", tmp_path)), expected) < GPU_BOUND


@dataclass(frozen=True)
class Given:
    """A checkpoint's tensors, all matrices of which come as codes."""

    floats: TensorFolder
    made: Mapping[str, Quantized]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.floats, name)

    def __contains__(self, name: str) -> bool:
        return name in self.floats

    @property
    def schemes(self) -> dict[str, str]:
        return {name: q.scheme.name for name, q in self.made.items()}

    def quantized(self, name: str) -> Quantized:
        return self.made[name]


def test_codes_that_a_checkpoint_has_are_packed_as_they_are(
    llama: Checkpoint, tmp_path: Path
) -> None:
    """The checkpoint's codes, not those of our codec: the lowest bit of each is flipped."""
    made = {}
    for name, shape in llama.tensors.shapes.items():
        if len(shape) == 2:
            how = scheme("q6_k" if "v_proj" in name else "q4_k")
            found = quantize(llama.tensors.read(name), how)
            made[name] = Quantized(
                how,
                found.codes ^ np.uint8(1),
                found.scales,
                minima=found.minima,
                sub_scales=found.sub_scales,
                sub_minima=found.sub_minima,
            )
    given = Checkpoint.open(llama.folder)
    given.__dict__["tensors"] = Given(llama.tensors, made)
    artifact = compiled(given, "cpu", recipes.KEEP, tmp_path)
    arrays = mapped(artifact.weights())
    name = "model.layers.0.self_attn.v_proj.weight"
    np.testing.assert_array_equal(arrays[f"{name}.scales"].shape[1], 1)
    expected = logits(compiled(given, "reference", recipes.KEEP, tmp_path))
    assert mean(logits(artifact), expected) < CPU_BOUND
    ours = logits(compiled(llama, "reference", "q8", tmp_path / "ours"))
    assert mean(ours, expected) > 2 * CPU_BOUND
