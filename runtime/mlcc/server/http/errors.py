"""Refusals of the transport (401, 403, 429, 503 ...) in the shape of the protocol that the address
speaks: a client of Anthropic's reads no error of OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Scope

from mlcc.errors import MlccError
from mlcc.service.http.router import Routes
from mlcc.service.http.routes import ADDRESSES
from mlcc.service.http.types import ApiResponse

ROUTES = Routes(ADDRESSES)


def plain_response(response: ApiResponse, more: Mapping[str, str] | None = None) -> Response:
    """A whole response of the service's, a refusal say, as Starlette's."""
    assert isinstance(response.body, str)
    return Response(response.body, response.status, {**response.headers, **(more or {})})


def error_response_for(
    scope: Scope, error: MlccError, more: Mapping[str, str] | None = None
) -> Response:
    """The answer to who asked, with more headers."""
    return plain_response(ROUTES.errors(path_of(scope))(error), more)


def path_of(scope: Scope) -> str:
    """The path as the service knows it, without the one that a proxy put before it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"
