"""LoRA in numpy: adapter matrices in the layout of kernels (low_rank.cc does it in C++), and their
product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.schema import AdaptersInfo
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.tables import ADAPTER
from mlcc.engine.lora import AdapterMatrix

Array = npt.NDArray[Any]


def floats(matrix: AdapterMatrix) -> Array:
    """float32[rows, columns], scaled."""
    stored = np.frombuffer(matrix.data, "<u2" if matrix.dtype == "bfloat16" else matrix.dtype)
    if matrix.dtype == "bfloat16":
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    shape = (matrix.rows, matrix.columns)
    placed = stored.reshape(shape[::-1]).T if matrix.transposed else stored.reshape(shape)
    scaled: Array = placed.astype(np.float32) * np.float32(matrix.scale)
    return scaled


def slot_arrays(room: AdaptersInfo, matrices: Sequence[AdapterMatrix]) -> list[Array]:
    """Contents of a slot of each tensor; zeros where no matrix is."""
    arrays = [np.zeros(shape[1:], np.float32) for shape in room.shapes]
    for m in matrices:
        arrays[m.tensor][m.row : m.row + m.rows, m.column : m.column + m.columns] = floats(m)
    return arrays


def low_rank(
    x: Array, a: Array, b: Array, slots: Array, ranks: Array, outputs: Sequence[int]
) -> Array:
    """Twin of `adapt_shrink` and `adapt_expand`: the adapters' part of a product [n, outputs].

    x [n, inputs]; a [slots, modules * rank, inputs], b [slots, rank, sum of outputs]; of each of
    the n tokens its slot, -1 = none, and the number of rows of a module that count.
    """
    added = np.zeros((len(x), sum(outputs)), x.dtype)
    room, ends = b.shape[1], np.cumsum([0, *outputs])
    for i, (slot, rank) in enumerate(zip(slots, ranks, strict=True)):
        for part in range(len(outputs) if slot >= 0 else 0):
            columns = slice(ends[part], ends[part + 1])
            small = a[slot, part * room : part * room + rank] @ x[i]
            added[i, columns] = small @ b[slot, :rank, columns]
    return added


class ReferenceAdapters:
    """The LoRA slots of the reference executor, whose graph has no adapters: they are added to the
    results of its linear layers."""

    def __init__(self, room: AdaptersInfo, dtype: Any) -> None:
        self._room = room
        self._arrays = [np.full(shape, np.nan, dtype) for shape in room.shapes]
        self._sites = {
            f"weight:{module}.weight": (number, part)
            for number, site in enumerate(room.sites)
            for part, module in enumerate(site.modules)
        }

    def write(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a slot."""
        for array, made in zip(self._arrays, slot_arrays(self._room, matrices), strict=True):
            array[slot] = made

    def add(self, step: StepView, weight: str, x: Array, y: Array) -> Array:
        """A linear layer's result with its adapters added."""
        if (found := self._sites.get(weight)) is None:
            return y
        number, part = found
        site, owners = self._room.sites[number], step.tokens("sequence")
        slots, ranks = (step.sequences(name)[owners] for name in ADAPTER)
        begin, rows = sum(site.outputs[:part]), slice(part * self._room.rank, None)
        columns = slice(begin, begin + site.outputs[part])
        a, b = self._arrays[2 * number][:, rows], self._arrays[2 * number + 1][:, :, columns]
        return y + low_rank(x, a, b, slots, ranks, [site.outputs[part]])
