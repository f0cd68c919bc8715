"""The data of an ONNX tensor: within the model's file, or in another file of its folder.

Opening checks that all declared bytes exist; data is read on demand. Knows no graph. Formats:
onnx.proto3 and ONNX's "External Data".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.files import find

DTYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""ONNX's codes of float dtypes. `float64` is listed so that it can be refused by name."""
_STORED = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2", "float64": "<f8"}
_EXTERNAL = 1
_MOST_DIMS = 8
_MOST_ENTRIES = 1 << 31


@dataclass(frozen=True)
class OnnxTensor:
    """A float tensor of a graph, whose bytes were checked to exist."""

    path: Path
    """The file with the bytes."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    """Offset in the file; unused if there is `data`."""
    data: bytes | None = None

    @classmethod
    def of(cls, proto: Any, name: str, folder: Path, model: Path) -> OnnxTensor | None:
        """From a TensorProto in the file `model` of `folder`; None for other dtypes. Raises
        CheckpointError."""
        if (dtype := DTYPES.get(proto.data_type)) is None:
            return None
        shape = tuple(proto.dims)
        if len(shape) > _MOST_DIMS or min(shape, default=0) < 0 or prod(shape) > _MOST_ENTRIES:
            raise damaged(model, name, f"has a shape that none has, {shape!s:.80}")
        size = prod(shape) * np.dtype(_STORED[dtype]).itemsize
        if proto.data_location == _EXTERNAL:
            path, start = _external(proto, name, folder, model, size)
            return cls(path, name, dtype, shape, start)
        data = _bytes(proto, dtype)
        if len(data) != size:
            raise damaged(model, name, f"has {len(data)} bytes, and its shape needs {size}")
        return cls(model, name, dtype, shape, 0, data)

    @property
    def nbytes(self) -> int:
        """Bytes on disk."""
        return prod(self.shape) * np.dtype(_STORED[self.dtype]).itemsize

    @property
    def is_matrix(self) -> bool:
        """Whether at least two dimensions exceed one: not a scale, bias or frequencies."""
        return sum(size > 1 for size in self.shape) > 1

    def read(self) -> npt.NDArray[np.float32]:
        """A fresh float32 copy. Raises CheckpointError."""
        data = self.data if self.data is not None else self._load()
        array = np.frombuffer(data, _STORED[self.dtype]).reshape(self.shape)
        if self.dtype == "bfloat16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.float32)

    def _load(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                data = file.read(self.nbytes)
        except OSError as error:
            reason = f"cannot be read ({error.strerror or error})"
            raise damaged(self.path, self.name, reason) from error
        if len(data) < self.nbytes:
            raise damaged(self.path, self.name, "is cut off")
        return data


def damaged(path: Path, name: str, what: str) -> CheckpointError:
    """The error for a damaged tensor."""
    return CheckpointError(f"{path}: tensor {name!r:.120} {what}; fetch the checkpoint again")


def _bytes(proto: Any, dtype: str) -> bytes:
    """The bytes of a TensorProto in the model's file: raw, or in a field of its type."""
    if proto.raw_data:
        return bytes(proto.raw_data)
    if dtype == "float32":
        return np.array(proto.float_data, "<f4").tobytes()
    if dtype == "float64":
        return np.array(proto.double_data, "<f8").tobytes()
    return np.array(proto.int32_data, "<i4").astype("<u2").tobytes()


def _external(proto: Any, name: str, folder: Path, model: Path, size: int) -> tuple[Path, int]:
    """File and offset of the first byte."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    location, parts = entries.get("location", ""), entries.get("location", "").split("/")
    if {"", ".", ".."} & set(parts) or any(c in location for c in "\\:\0") or len(location) > 255:
        raise damaged(model, name, f"is in {location!r:.80}, which is outside of the folder")
    beside = model.parent.relative_to(folder).as_posix()
    path = find(folder, f"{beside}/{location}")
    if path is None:
        raise damaged(model, name, f"is in {location!r:.80}, which is missing")
    start, length = _number(entries.get("offset", "0")), _number(entries.get("length", str(size)))
    if start is None or length != size:
        raise damaged(model, name, f"has an offset and length that do not fit its {size} bytes")
    if start + size > path.stat().st_size:
        raise damaged(model, name, f"lies beyond the end of {location!r:.80}")
    return path, start


def _number(text: str) -> int | None:
    return int(text) if len(text) < 19 and text.isascii() and text.isdigit() else None
