"""What watching an executor's kernels tells: the port that `mlcc profile` is made of.

Bytes are those of a call's arguments, each moved once: of pages and embedding tables only what the
step uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mlcc.engine.batch.batch import Batch


@dataclass
class KernelUse:
    """All calls of one kernel."""

    name: str
    shape: str
    """Of its largest argument."""
    calls: int = 0
    nanoseconds: int = 0
    bytes: int = 0


class KernelLog(Protocol):
    """Watches an executor from `start` to `stop`: `compiled_log`, or `tvm_log` for what runs over
    TVM's package."""

    @property
    def clock(self) -> str:
        """What the times are."""
        ...

    def start(self, batch: Batch) -> None:
        """Begin anew; the steps will use as many pages as this one."""
        ...

    def stop(self) -> list[KernelUse]:
        """The kernels since `start`, the costliest first."""
        ...

    def copy_bandwidth(self) -> float:
        """Bytes per second that a plain copy on the device reads and writes."""
        ...


HOST_CLOCK = "the host's clock around each awaited call"


def costliest(uses: list[KernelUse]) -> list[KernelUse]:
    """In the order of a report."""
    return sorted(uses, key=lambda use: -use.nanoseconds)
