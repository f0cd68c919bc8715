"""The port through which a compile reads a checkpoint's tensors, whatever its files are.

Filled by `weights.reader` (safetensors of floats) and `gguf.tensors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt


class TensorSource(Protocol):
    """Tensors by name, read one at a time."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of every tensor, as the model multiplies with it."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes on disk, for progress."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is stored in a way that `read` refuses."""
        ...

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A fresh float32 copy of one tensor. Raises CheckpointError, UnsupportedError."""
        ...
