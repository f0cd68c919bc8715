"""Errors of the transport (401, 403, 429, 503 ...) in the format of the route's protocol: an
Anthropic client gets an Anthropic error."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope

from mlcc.errors import MlccError
from mlcc.service.http.router import Router
from mlcc.service.http.routes import ROUTES
from mlcc.service.http.types import ApiResponse

ROUTER = Router(ROUTES)


def plain_response(response: ApiResponse, more: Mapping[str, str] | None = None) -> Response:
    """Convert a complete response of the service to Starlette's, with extra headers."""
    assert isinstance(response.body, str)
    return Response(response.body, response.status, {**response.headers, **(more or {})})


def error_response_for(
    scope: Scope, error: MlccError, more: Mapping[str, str] | None = None
) -> Response:
    """Return the error response of a request, with extra headers."""
    return plain_response(ROUTER.errors(path_of(scope))(error), more)


def path_of(scope: Scope) -> str:
    """Return the path without the proxy's prefix."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"
