"""Weights as numpy arrays over memory-mapped files.

The only module of `artifact/` that imports numpy; opening a model does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mlcc.artifact.safetensors import TensorEntry
from mlcc.errors import ArtifactError

Array = npt.NDArray[Any]


Name = TypeVar("Name")


def mapped(entries: Mapping[Name, TensorEntry]) -> dict[Name, Array]:
    """All tensors, without a copy; bfloat16, unknown to numpy, is returned as uint16.

    Arrays are writable because DLPack asks for it, but the mapping is private: a write never
    reaches the file. Raises ArtifactError.
    """
    file = cache(_map_file)
    return {name: _view(file(entry.path), entry) for name, entry in entries.items()}


def _map_file(path: Path) -> Array:
    try:
        return np.memmap(path, dtype=np.uint8, mode="c")
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be mapped ({error.strerror or error})") from error


def _view(file: Array, entry: TensorEntry) -> Array:
    dtype = "uint16" if entry.dtype == "bfloat16" else entry.dtype
    raw: Array = np.frombuffer(file, "u1", entry.stop - entry.start, entry.start)
    tensor: Array = raw.view(np.dtype(dtype).newbyteorder("<"))
    return tensor.reshape(entry.shape)
