"""The constants of mlcc.h that Python uses; the header documents them."""

from __future__ import annotations

from enum import IntEnum

from mlcc.api.errors import CancelledError, EngineDiedError
from mlcc.errors import (
    ArtifactError,
    CapacityError,
    DeviceError,
    InvalidRequestError,
    MlccError,
    UnsupportedError,
)


class Code(IntEnum):
    """`mlcc_code`."""

    OK = 0
    CANCELLED = 2
    CLOSED = 3
    STALLED = 4
    BAD_ARGUMENT = 10
    NO_CALLBACK = 12
    BAD_MODEL = 20
    NO_MEMORY = 21
    DEVICE_FAILED = 22
    UNSUPPORTED = 23
    FAILED = 99


class Kind(IntEnum):
    """`mlcc_event_kind`."""

    PROGRESS = 1
    READY = 2
    FAILED = 3
    HEAD = 4
    BODY = 5
    END = 6


class Trim(IntEnum):
    """`mlcc_trim_level`."""

    NONE = 0
    CACHE = 1
    REFUSE = 2


class NoCallbackError(MlccError):
    """The model needs a callback that the host did not provide."""


class StalledError(CancelledError):
    """The host does not consume the events."""


_CODES: dict[type[MlccError], Code] = {
    StalledError: Code.STALLED,
    CancelledError: Code.CANCELLED,
    EngineDiedError: Code.CLOSED,
    NoCallbackError: Code.NO_CALLBACK,
    ArtifactError: Code.BAD_MODEL,
    CapacityError: Code.NO_MEMORY,
    DeviceError: Code.DEVICE_FAILED,
    UnsupportedError: Code.UNSUPPORTED,
    InvalidRequestError: Code.BAD_ARGUMENT,
}


def code_of(error: MlccError) -> Code:
    """Return the `mlcc_code` of an error."""
    found = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return next(found, Code.FAILED)
