"""The errors that mlcc raises on purpose: each says what happened, why, and what to type next.

Anything that is not an `MlccError` is a bug. The command line prints these as one line and exits
with `exit_code`; the server turns them into OpenAI's error shape with `http_status`. One line holds
by construction: a message may quote names out of files, which are not to be trusted.
"""

from __future__ import annotations

_LONGEST, _KEPT = 4000, 1000
"""Characters of a message; and of its end, which says what to type."""


def printable(text: str) -> str:
    """`text` as one line of plain characters: what drives a terminal, ends a line or turns its
    direction, and halves of surrogates, are spelled as Python's escapes. Very long ones are cut."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - _KEPT]} ... {text[-_KEPT:]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class MlccError(Exception):
    """Base of every deliberate error. `param` names the offending API field, when there is one."""

    exit_code = 2
    http_status = 500
    kind = "server_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.message = printable(message)
        super().__init__(self.message)
        self.param = param
        self.code = code


class UnsupportedError(MlccError):
    """A feature, architecture or combination that is not built (yet)."""

    http_status = 400
    kind = "invalid_request_error"


class InvalidRequestError(MlccError):
    """A request that can never be honoured as written: unknown field, bad range, too long."""

    http_status = 400
    kind = "invalid_request_error"


class ArtifactError(MlccError):
    """A compiled model that is damaged, incomplete, foreign or unsafe."""


class CheckpointError(MlccError):
    """A source checkpoint that is damaged, incomplete or not what its config says."""


class CapacityError(MlccError):
    """Not enough memory, disk, pages or queue for what was asked."""

    http_status = 503


class DeviceError(MlccError):
    """The device failed, or lacks something the library needs."""


class DeviceLostError(DeviceError):
    """The device is gone (reset, removed, driver crash): nothing on it can be used again."""

    http_status = 503


class OutOfMemoryError(CapacityError):
    """The device's memory does not hold what was to be put there."""
