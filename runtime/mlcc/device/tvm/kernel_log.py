"""Kernel log of a `TvmExecutor`: time and bytes of every kernel call.

Each call is synchronized and timed on the host.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mlcc.device.kernel_log import HOST_CLOCK, KernelUse, copy_speed, costliest
from mlcc.device.tvm.executor import TvmExecutor
from mlcc.device.tvm.runtime import runtime
from mlcc.engine.batch.batch import Batch

_COPIED = 128 << 20


class TvmKernelLog:
    """The `KernelLog` of a `TvmExecutor`."""

    clock = HOST_CLOCK

    def __init__(self, executor: TvmExecutor) -> None:
        self._executor = executor
        self._uses: dict[str, KernelUse] = {}
        self._watching = False
        self._began = 0
        self._used_pages: Sequence[int] = ()
        """Pages or slots of each cache group that a step uses."""
        executor.instrument(self._on_call)

    def start(self, batch: Batch) -> None:
        """Clear the log and start it; steps are assumed to use as many pages as `batch`."""
        self._uses, self._used_pages = {}, _used_pages(batch)
        self._watching = True

    def stop(self) -> list[KernelUse]:
        """The kernels since `start`, most expensive first."""
        self._watching = False
        return costliest([*self._uses.values()])

    def copy_bandwidth(self) -> float:
        """Bytes per second read and written by a copy on the device, best of several."""
        return copy_speed(self._copy_time, _COPIED)

    def _copy_time(self, count: int) -> float:
        tvm, device = runtime(), self._executor.tvm_device
        a, b = (tvm.runtime.empty((count // 4,), "float32", device) for _ in range(2))
        elapsed = 0
        for _ in range(2):  # the first touches the pages
            self._executor.synchronize()
            began = time.perf_counter_ns()
            a.copyto(b)
            self._executor.synchronize()
            elapsed = time.perf_counter_ns() - began
        return elapsed

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
        use.nanoseconds += elapsed
        use.bytes += self._moved(name, tensors)
        return 0

    def _await(self) -> None:
        if self._executor.handle.kind != "cpu":
            self._executor.synchronize()

    def _moved(self, name: str, tensors: list[Any]) -> int:
        total = 0
        for tensor in tensors:
            size = _nbytes(tensor)
            shape = tuple(map(int, tensor.shape))
            group = self._executor.group_of_shape.get(shape)
            if group is not None:
                pages = 1 if "append" in name else self._used_pages[group]
                size = size // max(1, int(tensor.shape[0])) * pages
            total += size
        if name.startswith("embedding"):
            total = 2 * _nbytes(tensors[-1])
        return total


def _used_pages(batch: Batch) -> list[int]:
    """Of each cache group: pages that a step reads; of states, a slot read and one written."""
    groups = enumerate(batch.layout.groups)
    return [
        batch.num_pages(g) if group.has_pages else 2 * batch.num_sequences for g, group in groups
    ]


def _nbytes(tensor: Any) -> int:
    count = 1
    for size in tensor.shape:
        count *= int(size)
    return count * int(tensor.dtype.itemsize)


def _largest(tensors: list[Any]) -> str:
    if not tensors:
        return ""
    return "x".join(str(int(d)) for d in max(tensors, key=_nbytes).shape)
