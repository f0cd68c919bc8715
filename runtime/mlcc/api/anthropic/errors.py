"""Errors as Anthropic's clients expect them: which kind is which status."""

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
"""Of a status; others below 500 are invalid_request_error, the rest api_error."""


def anthropic_error(error: MlccError) -> AnthropicError:
    """Anthropic's shape of an error."""
    status = error.http_status
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
