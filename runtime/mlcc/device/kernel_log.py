"""Time and bytes of every kernel call of a native executor: what `mlcc profile` is made of.

Times come from the device's own clock where its plugin has one (WebGPU's timestamp queries); else
each call is awaited and timed from here. Bytes are those of a call's arguments, each moved once:
of pages and embedding tables only what the step uses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.device import webgpu
from mlcc.device.native import NativeExecutor
from mlcc.device.tvm_runtime import runtime

_LAUNCH = re.compile(r"_kernel(_\d+)?$")
"""A function's launches are named after it."""


@dataclass
class KernelUse:
    """All calls of one kernel."""

    name: str
    shape: str
    """Of its largest argument."""
    calls: int = 0
    nanoseconds: int = 0
    bytes: int = 0


class KernelLog:
    """Watches an executor from `start` to `stop`."""

    def __init__(self, executor: NativeExecutor) -> None:
        self._executor = executor
        self._place = executor.place
        self._uses: dict[str, KernelUse] = {}
        self._watching = False
        self._began = 0
        self.used_pages: Sequence[int] = ()
        """Pages or slots of each cache group that a step uses, set by who makes the batches."""
        executor.instrument(self._on_call)

    @property
    def clock(self) -> str:
        """What the times are."""
        if self._own_clock:
            return "the device's clock"
        return "the host's clock around each awaited call"

    @property
    def _own_clock(self) -> bool:
        return self._place.kind == webgpu.KIND

    def start(self) -> None:
        self._uses = {}
        self._watching = True
        if self._own_clock:
            webgpu.profile_start(self._place.index)

    def stop(self) -> list[KernelUse]:
        """The kernels since `start`, the costliest first."""
        self._watching = False
        if self._own_clock:
            for kernel in webgpu.profile_stop(self._place.index).kernels:
                use = self._uses.get(_LAUNCH.sub("", kernel.name))
                if use is not None:
                    use.nanoseconds += kernel.total_ns
        return sorted(self._uses.values(), key=lambda use: -use.nanoseconds)

    def _on_call(self, function: Any, name: str, before: bool, result: Any, *arguments: Any) -> int:
        """TVM's hook round every call of the virtual machine; 0 = go on."""
        if not self._watching or name.startswith("vm."):
            return 0
        if before:
            self._await()
            self._began = time.perf_counter_ns()
            return 0
        self._await()
        elapsed = time.perf_counter_ns() - self._began
        tensors = [a for a in arguments if isinstance(a, runtime().runtime.Tensor)]
        use = self._uses.setdefault(name, KernelUse(name, _largest(tensors)))
        use.calls += 1
        use.nanoseconds += 0 if self._own_clock else elapsed
        use.bytes += self._moved(name, tensors)
        return 0

    def _await(self) -> None:
        if self._place.kind != "cpu" and not self._own_clock:
            self._executor.synchronize()

    def _moved(self, name: str, tensors: list[Any]) -> int:
        total = 0
        for tensor in tensors:
            size = _nbytes(tensor)
            shape = tuple(map(int, tensor.shape))
            group = self._executor.group_of_shape.get(shape)
            if group is not None:
                pages = 1 if "append" in name else self.used_pages[group]
                size = size // max(1, int(tensor.shape[0])) * pages
            total += size
        if name.startswith("embedding"):
            total = 2 * _nbytes(tensors[-1])
        return total


def copy_bandwidth(executor: NativeExecutor, size: int = 128 << 20, repeats: int = 5) -> float:
    """Bytes per second that a plain copy on the device reads and writes, the best of `repeats`."""
    tvm = runtime()
    device = executor.device
    a, b = (tvm.runtime.empty((size // 4,), "float32", device) for _ in range(2))
    best = float("inf")
    for _ in range(repeats + 1):  # the first touches the pages
        began = time.perf_counter()
        a.copyto(b)
        executor.synchronize()
        best = min(best, time.perf_counter() - began)
    return 2 * size / best


def _nbytes(tensor: Any) -> int:
    count = 1
    for size in tensor.shape:
        count *= int(size)
    return count * int(tensor.dtype.itemsize)


def _largest(tensors: list[Any]) -> str:
    if not tensors:
        return ""
    return "x".join(str(int(d)) for d in max(tensors, key=_nbytes).shape)
