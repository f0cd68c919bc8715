"""Numbers that cannot be converted are refused with the tensor's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.safetensors import TensorFolder
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.ir.layout import WeightPlan
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.linear import packing
from mlcc_compiler.options import Options
from mlcc_compiler.quantization import quantize, schemes
from mlcc_compiler.weights import convert
from mlcc_compiler.weights.convert import check_finite
from mlcc_targets import get_target
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

ROWS = {"first": 50, "second": 3, "third": 44}
NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quant", ["f32", "bf16", "f16", "q8", "q4"])
def test_nan_and_infinity_are_refused(tmp_path: Path, quant: str, value: float) -> None:
    folder = write_checkpoint(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors[NAME][3, 5] = value
    save_file(tensors, folder / "model.safetensors")
    options: Any = Options(quant=quant, context=64)
    with pytest.raises(CheckpointError, match=f"'{NAME}' holds NaN or infinity"):
        compile_model(
            Checkpoint.open(folder), get_target("reference"), tmp_path / "out", options, Progress()
        )
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(("value", "fits"), [(65504.0, True), (-65504.0, True), (-65520.0, False)])
def test_float16_must_hold_every_value(value: float, fits: bool) -> None:
    weight = np.array([[0.5, value]], np.float32)
    check_finite("w", weight, "bf16")
    if fits:
        check_finite("w", weight, "f16")
        return
    with pytest.raises(UnsupportedError, match=r"'w' holds 6.552e\+04.*use --quant bf16"):
        check_finite("w", weight, "f16")


@pytest.mark.parametrize("name", ["int8_g32", "k4_g32", "bf16", "k4_g32 by sizes"])
def test_rows_at_a_time_are_the_whole(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that cross from one source to the next, and a last tile that is not full."""
    scheme, _, sized = name.partition(" ")
    rng = np.random.default_rng(0)
    parts = {name: rng.standard_normal((n, 64)).astype(np.float32) for name, n in ROWS.items()}
    save_file(parts, tmp_path / "model.safetensors")
    isa = Isa.from_features("x86_64", ("avx2", "fma", "f16c"))
    layout = packing(sum(ROWS.values()), 64, scheme, isa).layout()
    plan = WeightPlan(tuple(ROWS), (sum(ROWS.values()), 64), "matrix", scheme, layout)
    monkeypatch.setattr(convert, "TILES", 1)
    monkeypatch.setattr(convert, "ROWS_AT_A_TIME", 2 * layout.tile * 64)
    progress: list[int] = []
    power = np.exp(3 * rng.standard_normal(64)).astype(np.float32)
    found = list(
        convert.arrays_of(
            [plan],
            TensorFolder.open(tmp_path),
            {name: name for name in ROWS},
            lambda done, total: progress.append(done),
            dict.fromkeys(ROWS, power) if sized else {},
        )
    )
    rows = np.concatenate(list(parts.values()))
    whole = layout.pack(rows)
    if sized:
        assert layout.pack_quantized is not None
        whole = layout.pack_quantized(quantize(rows, schemes.scheme(scheme), power))
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(progress) > 4 and progress == sorted(progress)
