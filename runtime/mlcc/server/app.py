"""The FastAPI application: routes, life of the engine's client, every error in OpenAI's shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mlcc import __version__
from mlcc.api.errors import NotFoundError, error_body, error_headers, internal_error
from mlcc.errors import MlccError
from mlcc.model import ModelText
from mlcc.server.client import EngineClient
from mlcc.server.routes import Routes, Settings


def create_app(
    engine: EngineClient,
    text: ModelText,
    settings: Settings,
    when_ready: Callable[[], None] = lambda: None,
) -> FastAPI:
    """The application for one model. The engine's process belongs to the caller."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        when_ready()
        yield
        engine.stop()

    app = FastAPI(
        title="mlcc",
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.include_router(Routes(engine, text, settings).router)
    app.add_exception_handler(MlccError, _on_mlcc_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_bug)
    return app


async def _on_mlcc_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MlccError)
    return JSONResponse(error_body(error), error.http_status, error_headers(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """No such address, or not with this method."""
    assert isinstance(error, HTTPException)
    place = f"{request.method} {request.url.path[:80]}"
    message = f"{place}: {error.detail}; this server has /v1/chat/completions and /v1/completions"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    body = error_body(NotFoundError(message, code=code))
    return JSONResponse(body, error.status_code, error.headers)


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _on_bug(request: Request, error: Exception) -> Response:
    return await _on_mlcc_error(request, internal_error())
