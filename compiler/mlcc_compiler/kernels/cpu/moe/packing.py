"""Packing of a layer's experts on the CPU: equal matrices, each packed as a linear's, one after the
other, so that matrix m starts at tile m * tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.ir.layout import PhysicalTensor, WeightLayout
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.quantization import Quantized


@dataclass(frozen=True)
class ExpertPacking:
    """The physical form of `count` matrices; `one` is that of each."""

    count: int
    one: CpuPacking

    @property
    def tensors(self) -> tuple[PhysicalTensor, ...]:
        """Suffix, shape and dtype of each stored tensor."""
        return tuple(
            replace(t, shape=(self.count * t.shape[0], *t.shape[1:])) for t in self.one.tensors
        )

    def layout(self) -> WeightLayout:
        """Shapes, and the packing of the f32 matrices."""
        codes = None if self.one.scheme.is_float else self.pack_quantized
        return WeightLayout(self.tensors, self.pack, codes)

    def pack(self, weight: npt.NDArray[np.float32]) -> list[npt.NDArray[Any]]:
        """f32, the matrices one below the other -> the arrays of `tensors`."""
        return self._fill(map(self.one.pack, weight.reshape(self.count, self.one.n, self.one.k)))

    def pack_quantized(self, q: Quantized) -> list[npt.NDArray[Any]]:
        """Codes of the matrices -> the arrays of `tensors`."""
        rows = (slice(i, i + self.one.n) for i in range(0, len(q.codes), self.one.n))
        return self._fill(self.one.pack_quantized(q.rows(some)) for some in rows)

    def _fill(self, matrices: Iterable[list[npt.NDArray[Any]]]) -> list[npt.NDArray[Any]]:
        """The arrays of `tensors` from those of each matrix."""
        arrays = [np.empty(t.shape, t.dtype) for t in self.tensors]
        tiles = self.one.tiles
        for m, parts in enumerate(matrices):
            for array, part in zip(arrays, parts, strict=True):
                array[m * tiles : (m + 1) * tiles] = part
        return arrays

    def unpack(self, arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
        """The matrices [count, N, K] that the kernels see; for tests and inspection."""
        tiles = self.one.tiles
        cut = range(0, self.count * tiles, tiles)
        return np.stack([self.one.unpack([a[i : i + tiles] for a in arrays]) for i in cut])
