"""Where the native executor keeps its arrays: in this process's memory, or on a device.

`HostTensors` shares memory with numpy; `DeviceTensors` copies. Both give tensors that TVM's
functions take, and stage a step's small arrays in buffers that every step uses again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mlcc.device.tvm_runtime import runtime

Array = npt.NDArray[Any]
ALIGNMENT = 64
"""Bytes; generated code loads vectors from arguments with aligned instructions."""


class Tensors(Protocol):
    """What the executor asks for."""

    def weight(self, array: Array) -> Any:
        """A tensor of these values; the array may be a mapped file."""
        ...

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """A tensor of any values. Raises RuntimeError or MemoryError if there is no room."""
        ...

    def stage(self, place: int, values: Any) -> Any:
        """An `array.array` as a tensor, valid until the next `stage` of the same place."""
        ...


class HostTensors:
    """Tensors over numpy's own memory."""

    def __init__(self) -> None:
        self._tvm = runtime()
        self._device = self._tvm.cpu()
        self._buffers: dict[int, Array] = {}
        self._shared: list[Array] = []

    def weight(self, array: Array) -> Any:
        """Over the array's own memory if it is aligned, else an aligned copy.

        The compiler lays weights out so that only odd vectors are copied.
        """
        if array.ctypes.data % ALIGNMENT:
            return self._tvm.runtime.tensor(array)
        self._shared.append(array)
        return self._tvm.runtime.from_dlpack(array)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return self._tvm.runtime.empty(tuple(shape), dtype, self._device)

    def stage(self, place: int, values: Any) -> Any:
        """Through an aligned buffer: 1 us, where a fresh tensor takes 20."""
        count = len(values)
        buffer = self._buffers.get(place)
        if buffer is None or len(buffer) < count:
            buffer = self._buffers[place] = _aligned(2 * count, values.typecode)
        view = buffer[:count]
        view[:] = np.frombuffer(values, dtype=values.typecode)
        return self._tvm.runtime.from_dlpack(view)


class DeviceTensors:
    """Tensors of a GPU. A staged array is copied into the front of a buffer that is kept."""

    def __init__(self, device: Any) -> None:
        self._tvm = runtime()
        self._device = device
        self._host = HostTensors()
        self._buffers: dict[int, tuple[int, Any]] = {}

    def weight(self, array: Array) -> Any:
        return self._tvm.runtime.tensor(array, self._device)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return self._tvm.runtime.empty(tuple(shape), dtype, self._device)

    def stage(self, place: int, values: Any) -> Any:
        count = len(values)
        room, buffer = self._buffers.get(place, (0, None))
        if buffer is None or room < count:
            room, dtype = max(1, 2 * count), np.dtype(values.typecode).name
            buffer = self.empty((room,), dtype)
            self._buffers[place] = room, buffer
        tensor = buffer._create_view((count,))
        if count:
            self._host.stage(place, values).copyto(tensor)
        return tensor


def values_of(tensor: Any) -> list[Any]:
    """A small tensor's elements as Python numbers; waits for the device."""
    values: list[Any] = tensor.numpy().tolist()
    return values


def _aligned(count: int, dtype: str) -> Array:
    """`count` elements that begin at a multiple of ALIGNMENT."""
    size = max(1, count) * np.dtype(dtype).itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype)
