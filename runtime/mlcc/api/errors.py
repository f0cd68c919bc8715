"""Errors as OpenAI's clients expect them, and the ones that only a server can raise.

Every failure becomes `{"error": {"message", "type", "param", "code"}}`; what is not an `MlccError`
is a bug, and its text stays in the log.
"""

from __future__ import annotations

from mlcc.api.openai.shapes import ErrorBody
from mlcc.errors import CapacityError, InvalidRequestError, MlccError

INTERNAL = "this is a bug in mlcc; its log (in a browser: the console) says which. Please report it"


class AuthenticationError(InvalidRequestError):
    """No API key, or a wrong one."""

    http_status = 401


class ForbiddenError(InvalidRequestError):
    """Asked by a name, or from a page, that the server does not answer to."""

    http_status = 403


class NotFoundError(InvalidRequestError):
    """No such model or no such address."""

    http_status = 404


class MethodError(InvalidRequestError):
    """An address that is there, but not for this method; `allowed` is the one it is for."""

    http_status = 405

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message, code="method_not_allowed")
        self.allowed = allowed


class BodyTooLargeError(InvalidRequestError):
    """More bytes than the server reads."""

    http_status = 413


class MediaTypeError(InvalidRequestError):
    """A body that is not declared as JSON."""

    http_status = 415


class EncodingError(MediaTypeError):
    """A body that is compressed in a way that nobody here reads."""


class RateLimitError(CapacityError):
    """More than a key may ask for in a minute. `retry_after` is in seconds."""

    http_status = 429
    kind = "rate_limit_error"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, code="rate_limit_exceeded")
        self.retry_after = retry_after


class BusyError(CapacityError):
    """The queue is full. `retry_after` is in seconds."""

    retry_after = 1


class RequestTimeoutError(MlccError):
    """The answer took longer than the server allows."""

    http_status = 504


class EngineDiedError(MlccError):
    """The engine's process is gone, and with it every answer it was making. `cause` is why: of
    that only the class is for everybody, as `reason`."""

    def __init__(
        self, message: str, *, code: str | None = None, cause: MlccError | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.cause = cause

    @property
    def reason(self) -> str:
        """The name of a class of errors."""
        return type(self.cause or self).__name__


class CancelledError(MlccError):
    """The request was cancelled before its answer was complete."""

    http_status = 499


def error_body(error: MlccError) -> ErrorBody:
    """OpenAI's shape of an error."""
    return {
        "error": {
            "message": error.message,
            "type": error.kind,
            "param": error.param,
            "code": error.code,
        }
    }


def error_headers(error: MlccError) -> dict[str, str]:
    """When, whether and how to try again: for clients that retry by themselves."""
    if isinstance(error, MethodError):
        return {"Allow": error.allowed}
    if isinstance(error, EncodingError):
        return {"Accept-Encoding": "gzip"}
    if isinstance(error, (BusyError, RateLimitError)):
        return {"Retry-After": str(error.retry_after)}
    return {"x-should-retry": "false"} if error.http_status >= 500 else {}


def internal_error() -> MlccError:
    """What a caller sees of a bug."""
    return MlccError(INTERNAL, code="internal_error")
