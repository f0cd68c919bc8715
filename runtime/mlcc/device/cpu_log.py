"""Time and bytes of every kernel call on a CPU, as libmlcc_executor takes them."""

from __future__ import annotations

import ctypes
import time
from mmap import mmap

from mlcc.device.cpu import CpuExecutor
from mlcc.device.kernel_use import HOST_CLOCK, KernelUse, costliest
from mlcc.engine.batch import Batch

_COPIED, _REPEATS = 128 << 20, 5


class CpuKernelLog:
    """The `KernelLog` of a CPU."""

    clock = HOST_CLOCK

    def __init__(self, executor: CpuExecutor) -> None:
        self._executor = executor

    def start(self, batch: Batch) -> None:
        """Begin anew."""
        self._executor.watch()

    def stop(self) -> list[KernelUse]:
        """The kernels since `start`, the costliest first."""
        self._executor.watch(False)
        return costliest(
            [
                KernelUse(k.name.decode(), k.shape.decode(), k.calls, k.nanoseconds, k.bytes)
                for k in self._executor.kernels()
            ]
        )

    def copy_bandwidth(self) -> float:
        """Bytes per second that one thread's plain copy reads and writes, the best of some."""
        a, b = (ctypes.c_char.from_buffer(mmap(-1, _COPIED)) for _ in range(2))
        to, source = ctypes.addressof(a), ctypes.addressof(b)
        best = float("inf")
        for _ in range(_REPEATS + 1):  # the first touches the pages
            began = time.perf_counter()
            ctypes.memmove(to, source, _COPIED)
            best = min(best, time.perf_counter() - began)
        return 2 * _COPIED / best
