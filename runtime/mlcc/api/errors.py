"""Errors in OpenAI's shape, and error types that only a server raises.

Every failure becomes `{"error": {"message", "type", "param", "code"}}`. An exception that is not an
`MlccError` is a bug, and its text is only logged.
"""

from __future__ import annotations

from mlcc.api.openai.shapes import ErrorBody
from mlcc.errors import INTERNAL as INTERNAL
from mlcc.errors import CapacityError, DeviceError, InvalidRequestError, MlccError, UnsupportedError
from mlcc.errors import internal_error as internal_error


class AuthenticationError(InvalidRequestError):
    """No API key, or a wrong one."""

    http_status = 401


class ForbiddenError(InvalidRequestError):
    """The host name or origin of the request is not allowed."""

    http_status = 403


class NotFoundError(InvalidRequestError):
    """The model or path does not exist."""

    http_status = 404


class NotBuiltError(UnsupportedError):
    """An address of OpenAI's API that is not built here."""

    http_status = 501


class MethodError(InvalidRequestError):
    """The path exists, but not for this method; `allowed` names the method."""

    http_status = 405

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message, code="method_not_allowed")
        self.allowed = allowed


class BodyTooLargeError(InvalidRequestError):
    """The body has more bytes than the server reads."""

    http_status = 413


class MediaTypeError(InvalidRequestError):
    """A body that is not declared as JSON."""

    http_status = 415


class EncodingError(MediaTypeError):
    """The body's compression is not supported."""


class RateLimitError(CapacityError):
    """More requests than a key may send in a minute. `retry_after` is in seconds."""

    http_status = 429
    kind = "rate_limit_error"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, code="rate_limit_exceeded")
        self.retry_after = retry_after


class BusyError(CapacityError):
    """The queue is full. `retry_after` is in seconds."""

    retry_after = 1


class SleepingError(BusyError):
    """The models are out of memory until they are woken."""

    def __init__(self) -> None:
        super().__init__(
            "this server sleeps, with its models out of memory; POST /wake_up wakes it (a key with "
            "the scope 'admin' may), then send the request again",
            code="sleeping",
        )


class RequestTimeoutError(MlccError):
    """The answer took longer than allowed."""

    http_status = 504


class EngineDiedError(MlccError):
    """The engine's process is gone, with all its unfinished answers. `cause` is the reason; only
    the name of its class is public, as `reason`."""

    def __init__(
        self, message: str, *, code: str | None = None, cause: MlccError | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.cause = cause

    @property
    def reason(self) -> str:
        """Class name of the cause."""
        return type(self.cause or self).__name__


class EngineDownError(EngineDiedError):
    """The engine ended and did not start again yet. `retry_after` is in seconds."""

    http_status = 503
    retry_after = 1


class StartError(DeviceError):
    """The engine's process ended while it loaded the model: killed, or out of memory. The next may
    not."""


class CancelledError(MlccError):
    """The request was cancelled before its answer was complete."""

    http_status = 499


def error_body(error: MlccError) -> ErrorBody:
    """An error in OpenAI's shape."""
    return {
        "error": {
            "message": error.message,
            "type": error.kind,
            "param": error.param,
            "code": error.code,
        }
    }


def error_headers(error: MlccError) -> dict[str, str]:
    """Headers that say whether and when a client may retry."""
    if isinstance(error, MethodError):
        return {"Allow": error.allowed}
    if isinstance(error, EncodingError):
        return {"Accept-Encoding": "gzip"}
    if isinstance(error, (BusyError, RateLimitError, EngineDownError)):
        return {"Retry-After": str(error.retry_after)}
    return {"x-should-retry": "false"} if error.http_status >= 500 else {}
