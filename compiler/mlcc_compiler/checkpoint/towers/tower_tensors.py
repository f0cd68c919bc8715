"""A vision tower's tensors, under the names and in the forms of `models/vision`.

The convolution over patches becomes a matrix over a patch's pixels, row by row and channels last,
0 to 255: the image processor's mean and deviation are in its weight and bias. The table of
positions is in the order of merge blocks, in which the host writes patches. (Idefics 3 finds a
patch's row of the table by float32 arithmetic, which for some sizes that no model has rounds to a
neighbour's, to which one depends on the CPU.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isqrt

import numpy as np
import numpy.typing as npt

from mlcc.artifact.schema import VisionInfo
from mlcc_compiler.checkpoint.towers.tower_names import RenamedTensors, tower_names

Floats = npt.NDArray[np.float32]

_PATCHES = ("embeddings.patch_embedding.", "patch_embed.proj.")
_WEIGHTS = tuple(name + "weight" for name in _PATCHES)
_BIASES = tuple(name + "bias" for name in _PATCHES)
_POSITIONS = "embeddings.position_embedding.weight"
_AXES = "pos_embed.position_table"
"""Of Gemma 4: a table of columns and one of rows."""
_CLASSES = ("embeddings.class_embedding", "embeddings.cls_token")


@dataclass(frozen=True)
class TowerTensors(RenamedTensors):
    """The tensors of `base` whose names begin with one of `prefixes`, under the names that
    `prefixes` gives them; the others are absent."""

    prefixes: Mapping[str, str]
    info: VisionInfo
    side: int
    """Patches in a row of the tower's input."""
    transposed: Mapping[str, str] = field(default_factory=dict)
    """Matrices that are [in, out] in the checkpoint: the end of the name there -> here."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Parts of names in the checkpoint -> here, one after another."""
    scaled: Mapping[str, str] = field(default_factory=dict)
    """Matrices and biases whose outputs are multiplied by a vector: part of the name here -> the
    vector's, in its place."""
    halves: tuple[str, ...] = ()
    """Ends of the names of q and k, and of their norms: the first half of each head is turned by
    the column, the second by the row. Here one element of each pair comes before all others, and
    those of rows before those of columns."""
    head_dim: int = 0
    """Of `halves`."""
    unfolded: str = ""
    """End of the name of a matrix whose columns are, of each channel, the patches of a merge block
    (PyTorch's unfold); here they are, of each patch, its channels. "" = there is none."""
    channels_first: bool = False
    """Whether the matrix over a patch's pixels has those of a channel side by side, as PyTorch's
    unfold has them, and the class token is behind the patches: Llama 4's."""

    @cached_property
    def _names(self) -> dict[str, str]:
        """The checkpoint's name of each tensor."""
        return tower_names(self.base.shapes, self.prefixes, self._renamed)

    def _renamed(self, name: str) -> str:
        """The name here, without the prefix."""
        for theirs, own in self.renamed.items():
            name = name.replace(theirs, own)
        for theirs, own in self.transposed.items():
            if name.endswith(theirs):
                return name.removesuffix(theirs) + own
        return name

    def _is_transposed(self, name: str) -> bool:
        return any(name.endswith(own) for own in self.transposed.values())

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors."""
        folded = (*_CLASSES, *self.scaled.values())  # into others, by `read`
        found = {name: self._shape(name) for name in self._names if not name.endswith(folded)}
        for name in self._names:  # a convolution without a bias gets one
            if name.endswith(_WEIGHTS):
                found[_bias_of(name)] = (found[name][0],)
        return found

    def _shape(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.base.shapes[self._names[name]]
        if name.endswith(_POSITIONS):
            return shape[-2:]
        if name.endswith(_AXES):
            return 2 * self.info.position_axes, shape[-1]
        if not shape:
            return (1,)
        if name.endswith(_WEIGHTS) and len(shape) in (4, 5):
            return shape[0], shape[1] * shape[-2] * shape[-1]
        return shape[::-1] if self._is_transposed(name) else shape

    def read(self, name: str) -> Floats:
        """A fresh float32 copy of one tensor."""
        if name.endswith(_BIASES):
            return self._bias(name)
        tensor: Floats = self.base.read(self._names[name])
        if name.endswith(_WEIGHTS):
            return self._matrix(tensor)
        if name.endswith(_POSITIONS):
            return self._positions(name, tensor.reshape(tensor.shape[-2:]))
        if name.endswith(_AXES):
            return tensor[:, : self.info.position_axes].reshape(-1, tensor.shape[-1])
        if name.endswith(self.halves):
            return self._in_pairs(tensor)
        if self.unfolded and name.endswith(self.unfolded):
            parts = tensor.reshape(len(tensor), -1, self.info.merge_size**2)
            return np.ascontiguousarray(parts.transpose(0, 2, 1)).reshape(tensor.shape)
        for part, vector in self.scaled.items():
            if part in name:
                scale = self.base.read(self._names[name[: name.index(part)] + vector])
                return tensor * (scale[:, None] if tensor.ndim == 2 else scale)
        if name.endswith(("_min", "_max")):  # a bound of `ops.clip`; infinite where there is none
            most = np.finfo(np.float32).max
            return np.clip(tensor, -most, most).reshape(1)
        return np.ascontiguousarray(tensor.T) if self._is_transposed(name) else tensor

    def _in_pairs(self, rows: Floats) -> Floats:
        """The rows of all heads in the order of `halves`."""
        quarters = rows.reshape(-1, 4, self.head_dim // 4, *rows.shape[1:])
        return np.ascontiguousarray(quarters[:, [2, 0, 3, 1]]).reshape(rows.shape)

    def _positions(self, name: str, table: Floats) -> Floats:
        """The rows of patches in the order of merge blocks. That of a class token, the first one
        there, comes last and is its whole embedding: that of a row without pixels is the bias."""
        order = merge_order(self.side, self.side, self.info.merge_size)
        if not self.info.class_row:
            return table[order]
        begin = name.removesuffix(_POSITIONS)
        own = next(begin + each for each in _CLASSES if begin + each in self._names)
        bias = self._bias(begin + _BIASES[0])
        place, patches = (-1, table[:-1]) if self.channels_first else (0, table[1:])
        token = table[place] + self.base.read(self._names[own]).reshape(-1) - bias
        return np.concatenate([patches[order], token[None]])

    def _matrix(self, convolution: Floats) -> Floats:
        """[hidden, 3, height, width] -> [hidden, pixels of a patch], for pixels of 0 to 255, or as
        the host normalises them."""
        scaled = self._by_channel(convolution)
        if not self.info.bf16_pixels:
            scaled = scaled / (255 * self._std)
        found = scaled.transpose(0, 2, 3, 1).reshape(len(convolution), -1)
        return np.ascontiguousarray(found, np.float32)

    def _bias(self, name: str) -> Floats:
        """The convolution's bias, or 0, less the products of the mean."""
        convolution = self.base.read(self._names[name.removesuffix("bias") + "weight"])
        mean = np.array(self.info.mean).reshape(1, 3, 1, 1)
        shift = (self._by_channel(convolution) * (mean / self._std)).sum((1, 2, 3))
        shift = 0 * shift if self.info.bf16_pixels else shift
        own = self.base.read(self._names[name]) if name in self._names else 0
        found: Floats = (own - shift).astype(np.float32)
        return found

    def _by_channel(self, convolution: Floats) -> npt.NDArray[np.float64]:
        """f64[hidden, 3, height, width]."""
        if self.channels_first:
            side = isqrt(convolution.shape[1] // 3)
            return convolution.astype(np.float64).reshape(-1, 3, side, side)
        return _over_time(convolution)

    @property
    def _std(self) -> npt.NDArray[np.float64]:
        return np.array(self.info.std).reshape(1, 3, 1, 1)


def _over_time(convolution: Floats) -> npt.NDArray[np.float64]:
    """[hidden, 3, height, width]; of a convolution over frames, which are all the same image, the
    sum over time. It may also be a matrix over pixels, row by row and channels last."""
    wide = convolution.astype(np.float64)
    if wide.ndim == 2:
        side = isqrt(wide.shape[1] // 3)
        return wide.reshape(-1, side, side, 3).transpose(0, 3, 1, 2)
    return wide.sum(2) if wide.ndim == 5 else wide


def _bias_of(weight: str) -> str:
    return weight.removesuffix("weight") + "bias"


def merge_order(height: int, width: int, merge: int) -> npt.NDArray[np.int64]:
    """The patches of an image of height x width patches, counted row by row, in the order of merge
    blocks: block after block, and in each row by row."""
    grid = np.arange(height * width).reshape(height // merge, merge, width // merge, merge)
    return grid.transpose(0, 2, 1, 3).reshape(-1)
