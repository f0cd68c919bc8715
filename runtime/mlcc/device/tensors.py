"""Where the native executor keeps its arrays: in this process's memory, or on a device.

`HostTensors` shares memory with numpy; `DeviceTensors` copies. Both give tensors that TVM's
functions take, and keep one buffer for the steps.
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

    def open_step(self, words: int) -> None:
        """Make room for the largest step, of so many 32-bit words."""
        ...

    def upload(self, words: memoryview, used: int) -> Any:
        """The first `used` words of a step as a tensor int32 of the size of `open_step`: the same
        one each time, so it is valid until the next `upload`."""
        ...


class HostTensors:
    """Tensors over numpy's own memory."""

    def __init__(self) -> None:
        self._tvm = runtime()
        self._device = self._tvm.cpu()
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

    def open_step(self, words: int) -> None:
        self._words = _aligned(words, "int32")
        self._step = self._tvm.runtime.from_dlpack(self._words)

    def upload(self, words: memoryview, used: int) -> Any:
        self._words[:used] = np.frombuffer(words, np.int32, used)
        return self._step


class DeviceTensors:
    """Tensors of a GPU. A staged array is copied into the front of a buffer that is kept."""

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

    def upload(self, words: memoryview, used: int) -> Any:
        staged = self._host.upload(words, used)
        staged._create_view((used,)).copyto(self._step._create_view((used,)))
        return self._step


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
