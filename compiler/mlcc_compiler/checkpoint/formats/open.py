"""Selects the reader of a checkpoint's tensors by config.json's quantization settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.formats import (
    awq,
    bitsandbytes,
    compressed,
    fp8,
    gptq,
    mlx,
    modelopt,
    mxfp4,
)
from mlcc_compiler.checkpoint.formats.onnx import OnnxTensors, file_of
from mlcc_compiler.checkpoint.formats.packed import PackedMatrix, PackedTensors, Parts
from mlcc_compiler.checkpoint.pickled import PickledFolder, files_of
from mlcc_compiler.checkpoint.safetensors import TensorFolder, Tensors, has_safetensors

Finder = Callable[[Parts, Mapping[str, Any]], Iterator[tuple[str, PackedMatrix]]]

METHODS: Mapping[str, Finder] = {
    "awq": awq.matrices,
    "gptq": gptq.matrices,
    "compressed-tensors": compressed.matrices,
    "bitsandbytes": bitsandbytes.matrices,
    "fp8": fp8.matrices,
    "fbgemm_fp8": fp8.matrices,
    "mxfp4": mxfp4.matrices,
    "mlx": mlx.matrices,
    "modelopt": modelopt.matrices,
    "modelopt_fp4": modelopt.matrices,
}
"""Readers by `quant_method`; MLX gives none."""
_SYNONYMS = {
    "quant_method": ("method",),
    "checkpoint_format": ("format",),
    "bits": ("w_bit", "wbits"),
    "group_size": ("q_group_size",),
}
"""Names of settings that transformers reads, and those that GPTQModel and AutoAWQ write instead."""
_OF_ACTIVATIONS = re.compile(
    r"\.((input|output|activation|k|v|q|prob)_(scale|zero_point|global_scale)|(input|activation)_scale_ub"
    r"|weight_format|SCB)$"
)
"""Tensors about activation and cache quantization, which are ignored."""
_UNSOUND = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError)


def quantization_of(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Method and settings; None for a float checkpoint."""
    given, of_mlx = config.get("quantization_config"), config.get("quantization")
    given = _with_usual_names(given) if isinstance(given, dict) else given
    if isinstance(given, dict) and (given.get("load_in_4bit") or given.get("load_in_8bit")):
        return "bitsandbytes", given  # older configs name no method
    if isinstance(given, dict) and "quant_method" in given:
        return str(given["quant_method"]), given
    if isinstance(of_mlx, dict) and "bits" in of_mlx:  # mlx-lm writes it under both names
        return "mlx", of_mlx
    return ("unknown", given) if isinstance(given, dict) else None


def _with_usual_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings under the names that transformers reads; of a setting under both, its value."""
    found = dict(settings)
    for usual, others in _SYNONYMS.items():
        named = next((found[name] for name in others if found.get(name) is not None), None)
        if found.get(usual) is None and named is not None:
            found[usual] = named
    return found


def check_method(path: object, config: Mapping[str, Any]) -> None:
    """Raises UnsupportedError for a method without a reader."""
    found = quantization_of(config)
    if found is not None and found[0] not in METHODS:
        raise UnsupportedError(
            f"{path}: is quantized by {found[0]!r:.40}, which mlcc cannot read; these it reads: "
            f"{', '.join(METHODS)}: compile the original checkpoint with --quant"
        )


def open_tensors(path: Path, config: Mapping[str, Any]) -> Tensors:
    """The tensors of a Hugging Face folder, whatever its files. Raises MlccError."""
    pickled = not has_safetensors(path) and files_of(path)
    if not has_safetensors(path) and not pickled and file_of(path) is not None:
        return OnnxTensors.open(path)
    return packed_tensors(PickledFolder.of(path) if pickled else TensorFolder.open(path), config)


def packed_tensors(folder: TensorFolder, config: Mapping[str, Any]) -> Tensors:
    """The folder's tensors as the model has them. Raises CheckpointError, UnsupportedError."""
    found = quantization_of(config)
    if found is None:
        return folder
    method, numbers = found
    packed: dict[str, PackedMatrix] = {}
    try:
        for name, matrix in METHODS[method](Parts(folder, method), numbers):
            packed[name] = matrix
    except _UNSOUND as error:
        raise CheckpointError(
            f"{folder.folder}: is no sound checkpoint in {method} ({type(error).__name__}: {error})"
            "; fetch it again"
        ) from error
    return PackedTensors(folder, packed, frozenset(filter(_OF_ACTIVATIONS.search, folder.entries)))
