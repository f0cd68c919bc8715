"""The errors that mlcc raises on purpose: each states what happened, why, and what to type next.

Anything that is not an `MlccError` is a bug. The command line prints these as one line and exits
with `exit_code`; the server turns them into OpenAI's error object with `http_status`. Messages are
made one line of printable characters, since they may quote names from untrusted files.
"""

from __future__ import annotations

_LONGEST, _KEPT = 4000, 1000
"""Maximum characters of a message, and of its end, which says what to type."""


def printable(text: str) -> str:
    """`text` as one line of printable characters. Terminal controls, line ends, direction marks and
    lone surrogates become Python escapes. Very long texts are cut in the middle."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - _KEPT]} ... {text[-_KEPT:]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class MlccError(Exception):
    """Base of all errors raised on purpose. `param` names the offending API field, if any."""

    exit_code = 2
    http_status = 500
    kind = "server_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.message = printable(message)
        super().__init__(self.message)
        self.param = param
        self.code = code


INTERNAL = "this is a bug in mlcc; its log (in a browser: the console) says which. Please report it"


def internal_error() -> MlccError:
    """The public error for a bug."""
    return MlccError(INTERNAL, code="internal_error")


def public_error(error: BaseException) -> MlccError:
    """`error` if it was raised on purpose; else the public error for a bug, with `error` as its
    cause."""
    if isinstance(error, MlccError):
        return error
    public = internal_error()
    public.__cause__ = error
    return public


class UnsupportedError(MlccError):
    """A feature, architecture or combination that is not implemented."""

    http_status = 400
    kind = "invalid_request_error"


class InvalidRequestError(MlccError):
    """A request that is invalid as written: unknown field, value out of range, too long."""

    http_status = 400
    kind = "invalid_request_error"


class ArtifactError(MlccError):
    """A compiled model that is damaged, incomplete, incompatible or unsafe."""


class CheckpointError(MlccError):
    """A source checkpoint that is damaged, incomplete or inconsistent with its config."""


class CapacityError(MlccError):
    """Not enough memory, disk space, pages or queue capacity for the request."""

    http_status = 503


class DeviceError(MlccError):
    """The device failed, or lacks a feature that the library needs."""


class DeviceLostError(DeviceError):
    """The device is lost (reset, removed, driver crash); nothing on it can be used again."""

    http_status = 503


class OutOfMemoryError(CapacityError):
    """The device has not enough memory for an allocation."""
