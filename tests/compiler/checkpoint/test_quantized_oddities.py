"""Quantized safetensors that are hostile, damaged, or in the dialect of a single tool."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.formats.open import quantization_of
from tests.compiler.checkpoint.test_quantized_safetensors import (
    NAME,
    Built,
    K,
    N,
    awq,
    four_bits,
    fp4,
    gptq,
    mxfp4,
    opened,
    w4a16,
)


def test_of_mlx_under_both_names() -> None:
    """mlx-lm writes both keys and no `quant_method`."""
    numbers = {"group_size": 64, "bits": 4}
    both = {"quantization": numbers, "quantization_config": numbers}
    assert quantization_of(both) == ("mlx", numbers)
    assert quantization_of({"quantization_config": numbers}) == ("unknown", numbers)


def test_blocks_that_nest_take_no_memory(tmp_path: Path) -> None:
    """`nested_blocksize` is a number of the file's."""
    tensors, config, _, _ = four_bits(nested=True)
    state = {"shape": [N, K], "blocksize": 64, "nested_offset": 0.0, "nested_blocksize": 2**31 - 1}
    name = f"{NAME}.weight.quant_state.bitsandbytes__nf4"
    tensors[name] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    found = opened(tmp_path, tensors, config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found.quantized(f"{NAME}.weight").check(NAME)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_an_order_of_no_integers(tmp_path: Path) -> None:
    tensors, config, _, _ = w4a16()
    tensors[f"{NAME}.weight_g_idx"] = np.ones(K)
    with pytest.raises(CheckpointError, match=r"g_idx' .* is float64"):
        opened(tmp_path, tensors, config)


def test_an_exponent_that_is_no_number(tmp_path: Path) -> None:
    tensors, config, _, _ = mxfp4()
    tensors[f"{NAME}.weight_scale"][3, 1] = 255
    with pytest.raises(CheckpointError, match="NaN"):
        opened(tmp_path, tensors, config).quantized(f"{NAME}.weight").check(NAME)


def test_a_scale_of_16_that_is_no_number(tmp_path: Path) -> None:
    tensors, config, _, _ = fp4(of_nvidia=True)
    tensors[f"{NAME}.weight_scale"].view(np.uint8)[3, 1] = 127
    with pytest.raises(CheckpointError, match="NaN"):
        opened(tmp_path, tensors, config).quantized(f"{NAME}.weight").check(NAME)


@pytest.mark.parametrize(
    ("left_out", "more", "message"),
    [
        ("weight_scale_2", None, "'NVFP4' without weight_scale_2 of modelopt is not supported"),
        ("input_scale", "pre_quant_scale", r"a scale of inputs \(AWQ\) of modelopt"),
    ],
)
def test_what_is_not_read_of_model_optimizer(
    left_out: str, more: str | None, message: str, tmp_path: Path
) -> None:
    tensors, config, _, _ = fp4(of_nvidia=True)
    of_it = tensors.pop(f"{NAME}.{left_out}")
    tensors |= {f"{NAME}.{more}": of_it} if more else {}
    with pytest.raises(UnsupportedError, match=message):
        opened(tmp_path, tensors, config)


@pytest.mark.parametrize(
    ("built", "names"),
    [(gptq, {"format": "marlin"}), (gptq, {"checkpoint_format": "bitblas"}),
     (awq, {"format": "gemv"})],
)  # fmt: skip
def test_an_order_of_a_kernel_is_named(
    built: Callable[[], Built], names: Any, tmp_path: Path
) -> None:
    """Not taken for damage. Names: `FORMAT` of GPTQModel."""
    tensors, config, _, _ = built()
    with pytest.raises(UnsupportedError, match=next(iter(names.values()))):
        opened(tmp_path, tensors, config | names)


def test_of_two_names_of_a_setting() -> None:
    """transformers' GPTQConfig: `checkpoint_format` goes before `format`."""
    both = {
        "quant_method": "gptq",
        "method": "awq",
        "format": "gptq",
        "checkpoint_format": "gptq_v2",
    }
    method, found = quantization_of({"quantization_config": both}) or ("", {})
    assert (method, found["checkpoint_format"]) == ("gptq", "gptq_v2")
