"""Tensors of a CUDA GPU, whose steps go in and out through page-locked memory.

With TVM's own runtime alone: its device `cuda_host` is page-locked memory, its copies run in the
stream that computes, and its SyncStreamFromTo is an event that another stream waits for.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from mlcc.device.tvm.runtime import global_function
from mlcc.device.tvm.tensors import Array, DeviceTensors, HostTensors, Read

_CUDA_HOST = 3
"""DLPack's number of page-locked memory, for which TVM's Python has no name."""
_COMPUTE = 0
"""The stream in which TVM computes and copies by default."""


class CudaTensors(DeviceTensors):
    """Tensors of a CUDA GPU. What goes in and out of a step passes through page-locked memory: with
    any other, each copy may wait for all that was queued before it.

    A step has a slot of such memory to itself until its results are here, by which time the GPU has
    taken its words too.
    """

    def __init__(self, device: Any, slots: int) -> None:
        """slots: more than steps in flight. With fewer, `step_buffer` waits for the oldest step."""
        super().__init__(device)
        self._slots = deque(_Slot(device) for _ in range(slots))
        follow = global_function("runtime.Device_StreamSyncFromTo")
        assert follow is not None, "TVM's runtime always has it"
        self._follow = follow

    def open_step(self, words: int) -> None:
        super().open_step(words)
        for slot in self._slots:
            slot.host.open_step(words)

    def step_buffer(self) -> memoryview:
        return self._next().host.step_buffer()

    def upload(self, words: memoryview, used: int) -> Any:
        self._host = self._next().host
        self._slots.rotate(-1)
        return super().upload(words, used)

    def _next(self) -> _Slot:
        """The slot of the next step, free of the step that had it."""
        slot = self._slots[1 % len(self._slots)]
        if slot.reading is not None:
            slot.reading()
        return slot

    def read(self, *tensors: Any) -> Read:
        """By the stream that computes, and an event behind the copies that the slot's own stream
        waits for: waiting for that stream waits for no later step."""
        slot = self._slots[0]
        views = []
        for index, tensor in enumerate(tensors):
            count = tensor.shape[0]
            view = slot.host.reuse(("result", index), count, tensor.dtype)
            if count:
                tensor.copyto(self._tvm.runtime.from_dlpack(view))
            views.append(view)
        self._follow(self._device, _COMPUTE, slot.stream)
        slot.reading = cache(partial(self._wait, slot.stream, views))
        return slot.reading

    def _wait(self, stream: int, views: Sequence[Array]) -> list[list[Any]]:
        self._device.sync(stream)
        return [view.tolist() for view in views]


class _Slot:
    """Page-locked memory of one step, and a stream that has nothing to do but to wait for it."""

    def __init__(self, device: Any) -> None:
        self.host = _PinnedTensors(device.index)
        self.stream: int = device.create_raw_stream()
        self.reading: Read | None = None
        """Its step's results; when called again it only repeats them."""


class _PinnedTensors(HostTensors):
    """Host tensors in memory that a CUDA GPU copies from and to by itself."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._locked = self._tvm.device(_CUDA_HOST, index)

    def _memory(self, size: int) -> Array:
        tensor = self._tvm.runtime.empty((size,), "uint8", self._locked)
        self._shared.append(tensor)
        data: Any = (ctypes.c_uint8 * size).from_address(tensor.data_ptr())
        found: Array = np.frombuffer(data, np.uint8)
        return found
