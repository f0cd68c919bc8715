"""The Starlette application: pages, API, middleware, and the engine client's lifespan.

The API's routes and their description come from tables (`mlcc.service.http.routes`, `openapi.py`);
`mlcc.service` finds the route of a request and answers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache, partial
from typing import Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from mlcc.batches.lines import InputBounds
from mlcc.batches.manager import BatchManager
from mlcc.batches.store import StoreBounds
from mlcc.errors import MlccError
from mlcc.server.asgi import ServiceApp, Settings
from mlcc.server.auth.allowed_hosts import AllowedHosts
from mlcc.server.auth.key_file import KeyFile
from mlcc.server.auth.keyring import METRICS_PATH, ApiKeyAuth, Keyring
from mlcc.server.auth.owners import OWNER_TABLE, Owners
from mlcc.server.auth.rate_limit import RateLimiter
from mlcc.server.docs_page import document_endpoint, reference_page
from mlcc.server.http.drain import DrainGate, DrainState
from mlcc.server.http.errors import error_response_for, path_of
from mlcc.server.observability.metrics import Metrics
from mlcc.server.observability.request_log import RequestLog
from mlcc.server.observability.traces import Traces
from mlcc.server.openapi import PUBLIC, openapi_document
from mlcc.server.prompts.body_reader import BodyOffload, BodyReader
from mlcc.service.engine_client import EngineClient
from mlcc.service.observer import Observer, ObserverGroup
from mlcc.service.served_model import Models
from mlcc.service.service import Service

EXPOSED = (
    "x-request-id",
    "x-mlcc-ignored",
    "x-should-retry",
    "retry-after",
    *(
        f"x-ratelimit-{what}-{of}"
        for what in ("limit", "remaining", "reset")
        for of in ("requests", "tokens")
    ),
)
"""Response headers that pages of other origins may read (CORS)."""


class Backend(Protocol):
    """The models behind the application, and their lifespan."""

    models: Models

    def clients(self) -> Mapping[str, EngineClient]:
        """Return the running engines, by model name."""

    def observe(self, observer: Callable[[str], Observer], /) -> None:
        """Set the observer of each model, by its name. Call it before `start`."""

    async def start(self) -> None:
        """Called in the event loop, before the first request."""

    async def stop(self) -> None:
        """Called after the last request. Idempotent."""


Beside = Callable[[ASGIApp], AbstractAsyncContextManager[None]]


def create_app(
    backend: Backend,
    settings: Settings,
    when_ready: Callable[[], None] = lambda: None,
    more: Sequence[BaseRoute] = (),
    drain_state: DrainState | None = None,
    beside: Beside | None = None,
) -> Starlette:
    """Create the application. `more` are routes besides the API's; `beside` runs while the
    application answers, and asks it.

    Raises MlccError if the key file is invalid, or traces cannot be sent.
    """
    rate_limiter, metrics = RateLimiter(), Metrics(backend.clients)
    backend.observe(lambda model: ObserverGroup(rate_limiter, metrics.of(model)))
    traces = Traces() if settings.traces else None
    file = KeyFile(settings.api_key_file) if settings.api_key_file else None
    key = ApiKeyAuth(Keyring(settings.api_keys, file), rate_limiter)
    reader = BodyReader()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await backend.start()
        await batches.start()
        async with beside(app) if beside else nullcontext():
            when_ready()
            yield
        await batches.stop()
        reader.close()
        await backend.stop()
        if traces is not None:
            await asyncio.to_thread(traces.close)

    service = Service(backend.models, settings.bounds)
    service.batches = batches = _batches(service, backend.models, settings, reader)
    service_app = ServiceApp(service, settings, reader)
    document = cache(partial(openapi_document, settings.root_path))

    async def show_metrics(request: HttpRequest) -> HttpResponse:
        await key(request)
        return await metrics.show(request)

    # From outermost to innermost.
    middleware = [
        Middleware(RootPath, root=settings.root_path),
        Middleware(RequestLog, listeners=[metrics, *([traces] if traces else [])]),
        *([_cors(settings.cors_origins)] if settings.cors_origins else []),
        Middleware(AllowedHosts, names=settings.hosts, origins=settings.cors_origins),
        Middleware(DrainGate, drain_state=drain_state or DrainState()),
    ]
    pages = [
        Route("/openapi.json", document_endpoint(document)),
        Route("/docs", reference_page(document)),
        Route(METRICS_PATH, show_metrics),
    ]
    return Starlette(
        routes=[*more, *pages, ApiRoute(service_app, key)],
        middleware=middleware,
        exception_handlers={MlccError: _refuse},
        lifespan=lifespan,
    )


def _cors(origins: Sequence[str]) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=EXPOSED,
    )


MOST_LINES = 100_000
"""Lines of a batch."""
_SLOTS_OF_SEVERAL = 32
"""Lines that are answered at once where there are several models."""


def _batches(
    service: Service, models: Models, settings: Settings, reader: BodyReader
) -> BatchManager:
    """The server's files and batches. Twice as many lines as a step has places are on the way, so
    that one is ready when a place is free."""

    def slots() -> int:
        served = models.only
        return 2 * served.engine.capacity.max_batch if served else _SLOTS_OF_SEVERAL

    return BatchManager(
        settings.files,
        lambda db: Owners(db, settings.api_keys),
        OWNER_TABLE,
        service.answer,
        slots,
        InputBounds(MOST_LINES, settings.max_body_bytes),
        StoreBounds(file_bytes=settings.max_file_bytes),
        lambda: BodyOffload(reader),
    )


class ApiRoute(BaseRoute):
    """Every other path, also one with a line break, which a Mount's pattern misses. The API key is
    checked first, and paths that do not exist are answered by 404 only then, so that strangers
    cannot probe for routes."""

    def __init__(self, service_app: ServiceApp, key: ApiKeyAuth) -> None:
        self._service_app = service_app
        self._key = key

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Match.FULL, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose(reason="this server speaks HTTP only")(scope, receive, send)
            return
        is_public = path_of(scope) in [route.path for route in PUBLIC]
        await (self._key.identify if is_public else self._key)(HttpRequest(scope))
        await self._service_app(scope, receive, send)


class RootPath:
    """ASGI middleware: handles a proxy's path prefix, whether the proxy strips it or not."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._root and scope["type"] == "http":
            path: str = scope["path"]
            if path != self._root and not path.startswith(f"{self._root}/"):
                path = self._root + path
            scope = {**scope, "path": path, "root_path": self._root}
        await self._app(scope, receive, send)


async def _refuse(request: HttpRequest, error: Exception) -> HttpResponse:
    assert isinstance(error, MlccError)
    return error_response_for(request.scope, error)
