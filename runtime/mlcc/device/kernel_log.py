"""Kernel log: the port through which `mlcc profile` watches an executor's kernels. Bytes are those
of a call's arguments, each moved once; of pages and embedding tables only what the step uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mlcc.engine.batch.batch import Batch


@dataclass
class KernelUse:
    """All calls of one kernel."""

    name: str
    shape: str
    """Shape of the kernel's largest argument."""
    calls: int = 0
    nanoseconds: int = 0
    bytes: int = 0


class KernelLog(Protocol):
    """Watches an executor from `start` to `stop`: `compiled_log`, or `tvm_log` for executors on
    TVM's package."""

    @property
    def clock(self) -> str:
        """Name of the clock."""
        ...

    def start(self, batch: Batch) -> None:
        """Start over. The steps will use as many pages as this batch."""
        ...

    def stop(self) -> list[KernelUse]:
        """The kernels since `start`, by descending cost."""
        ...

    def copy_bandwidth(self) -> float:
        """Bytes per second that a plain copy on the device reads and writes."""
        ...


HOST_CLOCK = "the host's clock around each awaited call"


def copy_speed(nanoseconds: Callable[[int], float], count: int, repeats: int = 5) -> float:
    """Bytes a second that a copy of `count` bytes reads and writes, by `nanoseconds(bytes)` of an
    awaited copy, the best of several.

    Waiting for a GPU takes as long as copying gigabytes, so the time of a shorter copy is taken
    off, if there is a difference.
    """
    short, whole = (min(nanoseconds(n) for _ in range(repeats)) for n in (count // 4, count))
    if whole < _CLEARLY * short:
        return 2e9 * count / whole
    return 2e9 * (count - count // 4) / (whole - short)


_CLEARLY = 1.1


def costliest(uses: list[KernelUse]) -> list[KernelUse]:
    """By descending cost."""
    return sorted(uses, key=lambda use: -use.nanoseconds)
