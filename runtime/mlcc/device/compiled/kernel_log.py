"""Time and bytes of every kernel call, as libmlcc_executor takes them."""

from __future__ import annotations

from mlcc.device.compiled.executor import CompiledExecutor
from mlcc.device.kernel_log import HOST_CLOCK, KernelUse, costliest
from mlcc.engine.batch.batch import Batch

_COPIED, _REPEATS = 128 << 20, 5


class CompiledKernelLog:
    """The `KernelLog` of a `CompiledExecutor`."""

    def __init__(self, executor: CompiledExecutor) -> None:
        self._executor = executor

    @property
    def clock(self) -> str:
        """What the times are."""
        return HOST_CLOCK if self._executor.handle.kind == "cpu" else "the device's clock"

    def start(self, batch: Batch) -> None:
        """Begin anew."""
        self._executor.watch()

    def stop(self) -> list[KernelUse]:
        """The kernels since `start`, the costliest first."""
        self._executor.watch(False)
        return costliest(self._executor.kernels())

    def copy_bandwidth(self) -> float:
        """Bytes per second that a plain copy on the device reads and writes, the best of some. On
        a CPU one thread copies."""
        best = min(self._executor.copy_time(_COPIED) for _ in range(_REPEATS))
        return 2 * _COPIED * 1e9 / best
