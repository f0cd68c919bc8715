"""Numbers that no library can compute with are refused by the tensor's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.tiny_checkpoint import write_checkpoint
from safetensors.numpy import load_file, save_file

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.plan import Options
from mlcc_compiler.weights.convert import check_finite
from mlcc_targets import get_target

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
