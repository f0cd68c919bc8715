"""One device of this machine: its kind and number, its memory, what its errors mean."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.errors import DeviceError, MlccError
from mlcc.util.fast_dataclass import fast_dataclass
from mlcc.util.memory import UNKNOWN_MEMORY, DeviceMemory

Translate = Callable[[RuntimeError, str], MlccError]
"""(error of a device, what was going on) -> what to raise."""


def plain_error(error: RuntimeError, doing: str) -> MlccError:
    """For devices whose errors carry no types."""
    return DeviceError(f"the device failed while {doing}: {str(error).splitlines()[-1]}")


@fast_dataclass(frozen=True)
class DeviceHandle:
    """One device, by TVM's kind and number."""

    kind: str = "cpu"
    index: int = 0
    memory: DeviceMemory = UNKNOWN_MEMORY
    translate: Translate = plain_error
    note: str = ""
    """What the user should know of it."""


CPU = DeviceHandle()
