"""Kernel log of a `CompiledExecutor`: time and bytes of every kernel call."""

from __future__ import annotations

from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.kernel_log import HOST_CLOCK, KernelUse, copy_speed, costliest
from mlcc.engine.batch.batch import Batch

_COPIED = 128 << 20


class CompiledKernelLog:
    """The `KernelLog` of a `CompiledExecutor`."""

    def __init__(self, executor: CompiledExecutor) -> None:
        self._executor = executor

    @property
    def clock(self) -> str:
        """The clock that times are measured with."""
        return HOST_CLOCK if self._executor.handle.kind == "cpu" else "the device's clock"

    def start(self, batch: Batch) -> None:
        """Clear the log and start it."""
        self._executor.watch()

    def stop(self) -> list[KernelUse]:
        """The kernels since `start`, most expensive first."""
        self._executor.watch(False)
        return costliest(self._executor.kernels())

    def copy_bandwidth(self) -> float:
        """Bytes per second read and written by a copy on the device, best of several. On a CPU one
        thread copies."""
        return copy_speed(self._executor.copy_time, _COPIED)
