"""An audio tower's tensors, under the names and in the forms of `models/audio`.

The convolutions over time become matrices: the first over three frames and a 1, whose column is its
bias, the second over three outputs of the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_ENCODER = "model.encoder."
_CROSS = re.compile(r"model\.layers\.(\d+)\.encoder_attn\.([kv]_proj\.\w+)")


@dataclass(frozen=True)
class AudioTensors:
    """The encoder's tensors of `base`, and those that make keys and values of its rows; the others
    are absent."""

    base: Any
    bins: int
    width: int
    """Numbers of three frames and a 1, with zeros behind them."""

    is_quantized = False
    notes: tuple[str, ...] = ()

    @cached_property
    def _names(self) -> dict[str, str]:
        """The checkpoint's name of each tensor."""
        found: dict[str, str] = {}
        for name in self.base.shapes:
            if name.startswith(_ENCODER) and name != _ENCODER + "conv1.bias":
                found[name.removeprefix(_ENCODER)] = name
            elif match := _CROSS.fullmatch(name):
                found[f"cross.{match[1]}.{match[2]}"] = name
        return found

    @property
    def schemes(self) -> dict[str, str]:
        """None: towers are quantized here."""
        return {}

    nearest = schemes

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors."""
        return {name: self._shape(name) for name in self._names}

    def _shape(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.base.shapes[self._names[name]]
        if name == "conv1.weight" and shape[1:] == (self.bins, 3):
            return shape[0], self.width
        if name == "conv2.weight" and len(shape) == 3:
            return shape[0], shape[1] * shape[2]
        return shape

    def check_dtypes(self, names: Iterable[str]) -> None:
        """Raises UnsupportedError if one of the tensors is of a dtype that `read` refuses."""
        self.base.check_dtypes(self._names[name] for name in names if name in self._names)

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor."""
        tensor: Floats = self.base.read(self._names[name])
        if not name.startswith("conv") or not name.endswith("weight"):
            return tensor
        rows = np.ascontiguousarray(tensor.transpose(0, 2, 1)).reshape(len(tensor), -1)
        if name == "conv2.weight":
            return rows
        found = np.zeros((len(rows), self.width), np.float32)
        found[:, : rows.shape[1]] = rows
        found[:, rows.shape[1]] = self.base.read(_ENCODER + "conv1.bias")
        return found
