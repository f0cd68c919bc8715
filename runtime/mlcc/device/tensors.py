"""Where the native executor keeps its arrays: in this process's memory, or on a device.

`HostTensors` shares memory with numpy; `DeviceTensors` and its kinds copy. All give tensors that
TVM's functions take, stage a step's small arrays in buffers that every step uses again, and bring a
step's results back without waiting for the steps behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mlcc.device import webgpu
from mlcc.device.tvm_runtime import runtime

Array = npt.NDArray[Any]
Read = Callable[[], list[list[Any]]]
"""Waits for tensors that are on their way, and gives the elements of each as Python numbers."""
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

    def begin(self) -> None:
        """A step begins: what is staged and read from here on is its own."""
        ...

    def stage(self, place: Hashable, values: Any) -> Any:
        """An `array.array` as a tensor, valid until the next `stage` of the same place."""
        ...

    def read(self, *tensors: Any) -> Read:
        """Start to bring small tensors here: behind all that was queued, before what will be."""
        ...


class HostTensors:
    """Tensors over numpy's own memory."""

    def __init__(self) -> None:
        self._tvm = runtime()
        self._device = self._tvm.cpu()
        self._buffers: dict[Hashable, Array] = {}
        self._shared: list[Any] = []

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

    def begin(self) -> None:
        """Steps are not in flight here: a CPU computes in `submit`."""

    def stage(self, place: Hashable, values: Any) -> Any:
        """Through an aligned buffer: 1 us, where a fresh tensor takes 20."""
        view = self.room(place, len(values), values.typecode)
        view[:] = np.frombuffer(values, dtype=values.typecode)
        return self._tvm.runtime.from_dlpack(view)

    def read(self, *tensors: Any) -> Read:
        return lambda: [_values(tensor) for tensor in tensors]

    def room(self, place: Hashable, count: int, dtype: str) -> Array:
        """`count` elements of the buffer that is kept for a place."""
        buffer = self._buffers.get(place)
        if buffer is None or len(buffer) < count:
            buffer = self._buffers[place] = self._aligned(2 * count, dtype)
        return buffer[:count]

    def _aligned(self, count: int, dtype: str) -> Array:
        """`count` elements that begin at a multiple of ALIGNMENT."""
        size = max(1, count) * np.dtype(dtype).itemsize
        raw = self._memory(size + ALIGNMENT)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + size].view(dtype)

    def _memory(self, size: int) -> Array:
        """So many bytes."""
        return np.zeros(size, np.uint8)


class DeviceTensors:
    """Tensors of a GPU. A staged array is copied into the front of a buffer that is kept.

    Of a kind that has nothing better: its `read` waits for all that was queued meanwhile.
    """

    def __init__(self, device: Any) -> None:
        self._tvm = runtime()
        self._device = device
        self._host = HostTensors()
        self._buffers: dict[Hashable, tuple[int, Any]] = {}

    def weight(self, array: Array) -> Any:
        return self._tvm.runtime.tensor(array, self._device)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return self._tvm.runtime.empty(tuple(shape), dtype, self._device)

    def begin(self) -> None:
        """Nothing is particular to a step."""

    def stage(self, place: Hashable, values: Any) -> Any:
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

    def read(self, *tensors: Any) -> Read:
        return lambda: [_values(tensor) for tensor in tensors]


class WebGpuTensors(DeviceTensors):
    """Tensors of the WebGPU plugin, whose commands keep their order without our help."""

    def read(self, *tensors: Any) -> Read:
        finish = webgpu.start_read(tensors)
        kinds = [(tensor.dtype, tensor.shape[0]) for tensor in tensors]

        def values() -> list[list[Any]]:
            data, at, found = finish(), 0, []
            for dtype, count in kinds:
                part = np.frombuffer(data, dtype, count, at)
                found.append(part.tolist())
                at += part.nbytes
            return found

        return values


def _values(tensor: Any) -> list[Any]:
    """A small tensor's elements as Python numbers; waits for the device."""
    values: list[Any] = tensor.numpy().tolist()
    return values
