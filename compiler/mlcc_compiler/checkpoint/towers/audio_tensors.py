"""An audio tower's tensors, under the names and in the forms of `models/audio`.

The convolutions over time become matrices: the first over three frames and a 1, whose column is its
bias, the second over three outputs of the first.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mlcc_compiler.checkpoint.towers.tower_names import RenamedTensors, tower_names

Floats = npt.NDArray[np.float32]

_ENCODER = "model.encoder."
_FIRST_BIAS, _POSITIONS = "conv1.bias", "embed_positions.weight"
_CROSS = re.compile(r"model\.layers\.(\d+)\.encoder_attn\.([kv]_proj\.\w+)")


@dataclass(frozen=True)
class ConvolvedTensors(RenamedTensors):
    """An encoder's tensors of `base`; the others are absent."""

    bins: int
    width: int
    """Numbers of three frames and a 1, with zeros behind them."""

    @property
    @abstractmethod
    def _all_names(self) -> dict[str, str]:
        """The checkpoint's name of each tensor, and of the first convolution's bias."""

    @cached_property
    def _names(self) -> dict[str, str]:
        """The checkpoint's name of each tensor."""
        return {own: name for own, name in self._all_names.items() if own != _FIRST_BIAS}

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
        found[:, rows.shape[1]] = self.base.read(self._all_names[_FIRST_BIAS])
        return found


class AudioTensors(ConvolvedTensors):
    """Whisper's encoder, and what makes keys and values of its rows."""

    @cached_property
    def _all_names(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self.base.shapes:
            if name.startswith(_ENCODER):
                found[name.removeprefix(_ENCODER)] = name
            elif match := _CROSS.fullmatch(name):
                found[f"cross.{match[1]}.{match[2]}"] = name
        return found


@dataclass(frozen=True)
class InputTensors(ConvolvedTensors):
    """An encoder and its projector, whose rows are rows of a prompt."""

    prefixes: Mapping[str, str] = field(default_factory=dict)
    """Prefix of a tensor in the checkpoint -> in the tower."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Beginnings of the names behind it -> in the tower."""
    chunk_rows: int = 0
    """Entries of the table of positions, which is computed, as no file has it; 0 = the file has
    it."""

    @cached_property
    def _all_names(self) -> dict[str, str]:
        return tower_names(self.base.shapes, self.prefixes, self._renamed)

    def _renamed(self, name: str) -> str:
        for theirs, own in self.renamed.items():
            if name.startswith(theirs):
                return own + name.removeprefix(theirs)
        return name

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors."""
        found = super().shapes
        return found | {_POSITIONS: self._table.shape} if self.chunk_rows else found

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor."""
        if self.chunk_rows and name == _POSITIONS:
            return self._table.copy()
        return super().read(name)

    @cached_property
    def _table(self) -> Floats:
        """Sinusoids, as transformers' SinusoidsPositionEmbedding computes them: f32[rows, width],
        sines, then cosines."""
        half = self.base.shapes[self._all_names[_FIRST_BIAS]][0] // 2
        step = np.float32(-np.log(10000.0) / (half - 1))
        scales = np.exp(step * np.arange(half, dtype=np.float32))
        turns = np.arange(self.chunk_rows, dtype=np.float32)[:, None] * scales
        return np.concatenate([np.sin(turns), np.cos(turns)], axis=1).astype(np.float32)
