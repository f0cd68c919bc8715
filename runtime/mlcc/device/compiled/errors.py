"""Maps the status codes of libmlcc_executor to typed errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlcc.artifact.schema import MANIFEST_NAME
from mlcc.device.check_batch import BadBatchError
from mlcc.device.device import DeviceHandle
from mlcc.errors import (
    ArtifactError,
    CapacityError,
    DeviceError,
    DeviceLostError,
    OutOfMemoryError,
    UnsupportedError,
)
from mlcc.util import executor_library as c

_RAISED: dict[int, Callable[[str], Exception]] = {
    c.WEIGHTS: lambda text: ArtifactError(f"{text}; compile the model again"),
    c.STATE: KeyError,
    c.UNSUPPORTED: lambda text: UnsupportedError(f"{text}; compile the model again"),
    c.ARGUMENT: BadBatchError,
}


def error_of(status: int, text: str, doing: str, library: Path, handle: DeviceHandle) -> Exception:
    """The error for a status other than OK. text: the native message; doing: the operation that
    failed."""
    if status in _RAISED:
        return _RAISED[status](text)
    if status == c.NO_LIBRARY:
        return DeviceError(
            f"cannot load {library.name}: {text}; compile the model again with this version of mlcc"
        )
    if status == c.INTERFACE:
        return ArtifactError(
            f"{library}: was compiled for another {MANIFEST_NAME} ({text}); compile the model "
            "again or copy the folder again"
        )
    if status == c.MEMORY and handle.kind == "cpu":
        return CapacityError(f"{text}; use a smaller --context or --max-batch")
    if status == c.MEMORY:
        return OutOfMemoryError(
            f"the GPU's memory is full while {doing}: {text}; use a smaller --context or "
            "--max-batch, or compile with a smaller --quant"
        )
    if status == c.RANK:
        return DeviceLostError(f"{text} while {doing}; open the model again")
    if status == c.LOST:
        return DeviceLostError(f"the GPU was lost while {doing}: {text}")
    return DeviceError(f"the device failed while {doing}: {text}")
