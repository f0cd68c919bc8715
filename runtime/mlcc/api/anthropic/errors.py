"""Errors in Anthropic's shape: the type for each HTTP status."""

from __future__ import annotations

from mlcc.api.anthropic.shapes import AnthropicError
from mlcc.errors import MlccError

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Error type by status; other statuses below 500 are invalid_request_error, the rest api_error."""


def anthropic_error(error: MlccError) -> AnthropicError:
    """An error in Anthropic's shape."""
    status = error.http_status
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
