"""--activations: the dtype to which activations are rounded, and which targets refuse it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.device.device import DeviceHandle
from mlcc.engine.batch.tables import CacheGroup, StepLayout
from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.ir.layout import AttentionShape, KvLayout
from mlcc_compiler.kernels import kernel_set_for
from mlcc_compiler.kernels.cpu.attention.blocking import Blocking
from mlcc_compiler.options import Options
from mlcc_compiler.plan import make_plan
from mlcc_targets import Choices, get_target
from tests.compiler.checkpoint.test_quantized_models import to_mlx
from tests.compiler.models.helpers.checkpoints import make_checkpoint
from tests.compiler.models.helpers.mixed import capacity_of, native, run_mixed
from tests.helpers.batches import PagedSequences
from tests.runtime.commands.tiny_checkpoint import write_checkpoint


@pytest.mark.feature("activations-16", "cpu", "runs")
def test_sixteen_bits_are_nearly_floats(tmp_path: Path) -> None:
    """A quantized model against transformers on the dequantized weights, with both roundings."""
    oracle = make_checkpoint("llama", tmp_path)
    to_mlx(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    parameters = dict(oracle.named_parameters())
    with torch.no_grad():
        for name in checkpoint.tensors.shapes:
            values = checkpoint.tensors.read(name).astype(np.float64)
            parameters[name].copy_(torch.from_numpy(values))

    def error(bits: int | None) -> float:
        options = Options(quant="keep", context=128, max_batch=8, kv="f32", activations=bits)
        plan = make_plan(checkpoint, get_target("cpu"), options)
        assert plan.activation_bits == (bits or 8)
        executor = native(plan, tmp_path, capacity_of(plan))
        return run_mixed(executor, oracle, 128)

    rounded, finer = error(None), error(16)
    assert finer < 5e-3 and finer < rounded / 20


@pytest.mark.usefixtures("vulkan")
@pytest.mark.parametrize(
    ("bits", "rows", "most"),
    [
        pytest.param(8, 1, 0.1, marks=pytest.mark.feature("activations-8", "vulkan", "runs")),
        pytest.param(16, 20, 0.03, marks=pytest.mark.feature("activations-16", "vulkan", "runs")),
    ],
)
def test_rounded_activations_on_a_gpu(bits: int, rows: int, most: float, tmp_path: Path) -> None:
    """Steps of one token by packed products, and of 20 by float16: near those of floats, not the
    same."""
    write_checkpoint(tmp_path / "checkpoint")
    checkpoint = Checkpoint.open(tmp_path / "checkpoint")

    def logits(bits: int | None) -> np.ndarray:
        options = Options(quant="q4", context=64, max_batch=2, kv="f32", activations=bits)
        plan = make_plan(checkpoint, get_target("vulkan"), options)
        assert plan.activation_bits == bits
        (folder := tmp_path / str(bits)).mkdir()
        executor = native(plan, folder, capacity_of(plan), DeviceHandle("webgpu"))
        sequences = PagedSequences(executor, [list(range(5, 25))])
        for _ in range(20 // rows):
            sequences.step({0: rows})
        return np.asarray(sequences.result(0))

    floats, rounded = logits(None), logits(bits)
    error = np.abs(rounded - floats).max() / floats.std()
    assert 1e-5 < error < most, error


def test_browsers_without_packed_products_get_the_alternative(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    options = Options(quant="q4", context=64, activations=8)
    plan = make_plan(checkpoint, get_target("webgpu"), options)
    others = [plan.for_target(other) for other in plan.target.alternatives]
    assert [each.activation_bits for each in (plan, *others)] == [8, None]
    alone = make_plan(checkpoint, get_target("webgpu", Choices(f16=False)), options)
    assert alone.activation_bits == 8


def test_devices_without_float16_cannot_multiply_in_it(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    options = Options(quant="f32", context=64, activations=16)
    plan = make_plan(checkpoint, get_target("webgpu"), options)
    others = [plan.for_target(other) for other in plan.target.alternatives]
    assert [each.activation_bits for each in (plan, *others)] == [16, None]
    with pytest.raises(UnsupportedError, match=r"float32 for devices without float16 \(--no-f16\)"):
        make_plan(checkpoint, get_target("vulkan", Choices(f16=False)), options)


def test_the_manifest_says_it(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    more = ["--context", "64", "-q", "--activations", "16", "--cpu", "host"]
    more += ["-o", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, ["compile", str(folder), *more])
    assert result.exit_code == 0, result.output
    manifest = json.loads((tmp_path / "out" / "mlcc.json").read_text())
    assert manifest["quantization"]["options"]["activation_bits"] == 16


@pytest.mark.parametrize(
    ("target", "quant", "bits", "why"),
    [
        ("reference", "q4", 16, "target 'reference' computes with them in float32"),
        ("cuda", "q4", 16, "target 'cuda' computes with them in float16"),
        ("cuda", "q4", 8, r"--quant q4 has no weights in fp8 \(E4M3\), which alone multiply"),
        ("cpu", "f32", 16, "--quant f32 has no matrix of codes"),
        ("cpu", "f16", 16, "--quant f16 has no matrix of codes"),
    ],
)
def test_where_nothing_rounds_them_it_is_refused(
    target: str, quant: str, bits: int, why: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    options = Options(quant=quant, context=64, activations=bits)
    with pytest.raises(UnsupportedError, match=f"{why}.*leave --activations out"):
        make_plan(checkpoint, get_target(target), options)


@pytest.mark.parametrize(
    ("quant", "bits", "rounds"),
    [
        ("q4", None, True),
        ("bf16", None, True),
        ("q4", 16, False),
        ("bf16", 16, False),
        ("f16", None, False),
        ("f32", None, False),
    ],
)
def test_attention_rounds_where_weights_have_rows_rounded(
    quant: str, bits: int | None, rounds: bool, tmp_path: Path
) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "model"))
    options = Options(quant=quant, context=64, activations=bits)
    plan = make_plan(checkpoint, get_target("cpu", Choices(cpu="avx512-bf16")), options)
    assert plan.rounds_rows is rounds
    kernels = kernel_set_for(plan.target, plan.activation_bits, plan.rounds_rows)
    step = StepLayout((CacheGroup("paged", 16),), 64, 1, 1, 4, 1)
    layout = KvLayout(16, "float16", 1, 32, step, 0)
    assert Blocking(AttentionShape(1, 1, 32, 1.0), layout, kernels.device).uses_bf16 is rounds
