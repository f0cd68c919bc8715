"""A handle of one device: kind and index, free memory, translation of its errors."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.errors import DeviceError, MlccError
from mlcc.util.fast_dataclass import fast_dataclass
from mlcc.util.memory import UNKNOWN_MEMORY, DeviceMemory

Translate = Callable[[RuntimeError, str], MlccError]
"""(error of the device, what was being done) -> the exception to raise."""


def plain_error(error: RuntimeError, doing: str) -> MlccError:
    """Translate an error of a device whose errors carry no types."""
    return DeviceError(f"the device failed while {doing}: {str(error).splitlines()[-1]}")


@fast_dataclass(frozen=True)
class DeviceHandle:
    """One device, by TVM's device kind and index."""

    kind: str = "cpu"
    index: int = 0
    memory: DeviceMemory = UNKNOWN_MEMORY
    translate: Translate = plain_error
    note: str = ""
    """A message for the user about this device."""


CPU = DeviceHandle()
