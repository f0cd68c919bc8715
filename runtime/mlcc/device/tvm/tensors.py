"""Tensors and transfer buffers of the TVM executor, in host memory or on a device.

`HostTensors` shares memory with numpy; `DeviceTensors` and its subclasses copy. All create tensors
for TVM's functions, hold the buffers by which steps are uploaded, and read back the results of a
step without waiting for later steps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mlcc.device.tvm.runtime import runtime

Array = npt.NDArray[Any]
Read = Callable[[], list[list[Any]]]
"""Waits for tensors being copied and returns the elements of each as Python numbers."""
ALIGNMENT = 64
"""Bytes; generated code loads vectors from arguments with aligned instructions."""


class Tensors(Protocol):
    """Tensor storage as the executor needs it."""

    def weight(self, array: Array) -> Any:
        """A tensor of these values; the array may be a mapped file."""
        ...

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """An uninitialized tensor. Raises RuntimeError or MemoryError if it does not fit."""
        ...

    def open_step(self, words: int) -> None:
        """Allocate the buffer of the largest step, in 32-bit words. Call it before the rest."""
        ...

    def step_buffer(self) -> memoryview:
        """Memory, int32[words], for the next step to be written into."""
        ...

    def upload(self, words: memoryview, used: int) -> Any:
        """Upload the first `used` words of a step; returns the tensor int32[words of `open_step`],
        the same one for each step. Words written into `step_buffer` are not copied on the host."""
        ...

    def read(self, *tensors: Any) -> Read:
        """Start to copy small tensors to the host, after all work queued so far."""
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

    def open_step(self, words: int) -> None:
        self._words = self._aligned(words, "int32")
        self._view: memoryview = self._words.data
        self._step = self._tvm.runtime.from_dlpack(self._words)

    def step_buffer(self) -> memoryview:
        return self._view

    def upload(self, words: memoryview, used: int) -> Any:
        """A CPU computes in `submit`, so one buffer does."""
        if words is not self._view:
            self._words[:used] = np.frombuffer(words, np.int32, used)
        return self._step

    def read(self, *tensors: Any) -> Read:
        return lambda: [_values(tensor) for tensor in tensors]

    def reuse(self, key: Hashable, count: int, dtype: str) -> Array:
        """`count` elements of the buffer that is reused for a key."""
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < count:
            buffer = self._buffers[key] = self._aligned(2 * count, dtype)
        return buffer[:count]

    def _aligned(self, count: int, dtype: str) -> Array:
        """`count` elements that begin at a multiple of ALIGNMENT."""
        size = max(1, count) * np.dtype(dtype).itemsize
        raw = self._memory(size + ALIGNMENT)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + size].view(dtype)

    def _memory(self, size: int) -> Array:
        """`size` bytes of host memory."""
        return np.zeros(size, np.uint8)


class DeviceTensors:
    """Tensors of a GPU. A step is copied into the front of a buffer that is kept.

    The generic implementation: its `read` also waits for work queued after it.
    """

    def __init__(self, device: Any) -> None:
        self._tvm = runtime()
        self._device = device
        self._host = HostTensors()

    def weight(self, array: Array) -> Any:
        return self._tvm.runtime.tensor(array, self._device)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return self._tvm.runtime.empty(tuple(shape), dtype, self._device)

    def open_step(self, words: int) -> None:
        self._host.open_step(words)
        self._step = self.empty((words,), "int32")

    def step_buffer(self) -> memoryview:
        return self._host.step_buffer()

    def upload(self, words: memoryview, used: int) -> Any:
        staged = self._host.upload(words, used)
        staged._create_view((used,)).copyto(self._step._create_view((used,)))
        return self._step

    def read(self, *tensors: Any) -> Read:
        return lambda: [_values(tensor) for tensor in tensors]


def _values(tensor: Any) -> list[Any]:
    """A small tensor's elements as Python numbers; waits for the device."""
    values: list[Any] = tensor.numpy().tolist()
    return values
