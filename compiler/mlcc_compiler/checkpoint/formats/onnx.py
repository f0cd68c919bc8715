"""An encoder's weights from an ONNX export, `model.onnx` or `onnx/model.onnx`.

Floats only; graphs of other models are refused, naming a node. The graph is never
run: `onnx_graph.py` maps its tensors to weights, `onnx_data.py` reads them. The file is in memory
while the object lives, except its external data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError, MlccError, UnsupportedError
from mlcc_compiler.checkpoint.files import find, read
from mlcc_compiler.checkpoint.formats.onnx_data import OnnxTensor
from mlcc_compiler.checkpoint.formats.onnx_graph import Weight, constants, weights_of
from mlcc_compiler.checkpoint.safetensors import READABLE
from mlcc_compiler.quantization.quantized import Quantized

FILES = ("model.onnx", "onnx/model.onnx")
"""Where optimum and sentence-transformers write the float32 export."""
_MOST_BYTES = (1 << 31) - 1
"""Size limit of a protobuf message."""


@dataclass(frozen=True)
class OnnxTensors:
    """A `safetensors.Tensors` of an export's weights, by the model's names."""

    path: Path
    weights: Mapping[str, Weight]

    @classmethod
    def open(cls, folder: Path) -> OnnxTensors:
        """Read the graph. Raises CheckpointError, UnsupportedError for a graph that is not an
        encoder's, MlccError without the package `onnx`."""
        path = file_of(folder)
        if path is None:
            raise CheckpointError(f"{folder}: has neither {' nor '.join(FILES)}")
        graph = _parse(folder, path)
        try:
            found = {
                name: tensor
                for name, proto in constants(path, graph)
                if (tensor := OnnxTensor.of(proto, name, folder, path)) is not None
            }
            return cls(path, weights_of(path, graph, found))
        except (ValueError, TypeError) as error:  # names that are no text
            raise _unsound(path, error) from error

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: weight.shape for name, weight in self.weights.items()}

    @cached_property
    def nbytes(self) -> int:
        """Bytes on disk, for progress."""
        return sum(weight.tensor.nbytes for weight in self.weights.values())

    @property
    def schemes(self) -> dict[str, str]:
        """Empty: floats only."""
        return {}

    @property
    def nearest(self) -> dict[str, str]:
        """Tensors of 16 and 32 bits keep their format under a keeping recipe."""
        dtypes = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
        found = {name: dtypes.get(weight.tensor.dtype) for name, weight in self.weights.items()}
        return {name: scheme for name, scheme in found.items() if scheme}

    @property
    def is_quantized(self) -> bool:
        """False: floats only."""
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """Empty: floats can be kept."""
        return ()

    def __contains__(self, name: str) -> bool:
        return name in self.weights

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is of a dtype that `read` refuses."""
        for name in names:
            if (dtype := self.weights[name].tensor.dtype) not in READABLE:
                raise UnsupportedError(
                    f"{self.path}: tensor {name!r} is {dtype}; mlcc reads {', '.join(READABLE)}: "
                    "export the model in float32"
                )

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of one tensor."""
        if name not in self.weights:
            raise CheckpointError(f"{self.path}: has no tensor {name!r}; fetch it again")
        self.check_dtypes([name])
        weight = self.weights[name]
        found = weight.tensor.read()
        return np.ascontiguousarray(found.T) if weight.transposed else found

    def quantized(self, name: str) -> Quantized:
        """Raises CheckpointError: no tensor is quantized."""
        raise CheckpointError(f"{self.path}: tensor {name!r} is not quantized; read its floats")


def file_of(folder: Path) -> Path | None:
    """The export in a folder. Raises CheckpointError if it is not a regular file."""
    return next((path for name in FILES if (path := find(folder, name)) is not None), None)


def _parse(folder: Path, path: Path) -> Any:
    """The GraphProto of a file."""
    try:
        from google.protobuf.message import DecodeError
        from onnx import ModelProto
    except ImportError as error:
        raise MlccError(
            f"{path}: is ONNX, which needs the package onnx to be read; type `pip install "
            '"mlcc[onnx]"`'
        ) from error
    data = read(folder, path.relative_to(folder).as_posix(), _MOST_BYTES)
    model = ModelProto()
    try:
        model.ParseFromString(data or b"")
    except (DecodeError, RuntimeError, MemoryError, RecursionError) as error:
        raise _unsound(path, error) from error
    if not model.graph.node:
        raise CheckpointError(f"{path}: is no ONNX model: it has no graph; fetch it again")
    return model.graph


def _unsound(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path}: is no ONNX model, or cut off ({error!s:.80}); fetch it again")
