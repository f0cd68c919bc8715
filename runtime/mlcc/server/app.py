"""The FastAPI application: routes, OpenAPI document, middleware, and the engine client's lifespan.

Routes and their description come from tables (`mlcc.service.http.routes`, `openapi.py`).
`mlcc.service` answers the requests; FastAPI does not validate bodies again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from mlcc import __version__
from mlcc.batches.lines import InputBounds
from mlcc.batches.manager import BatchManager
from mlcc.batches.store import StoreBounds
from mlcc.errors import MlccError
from mlcc.server.asgi import ServiceApp, ServiceResponse, Settings
from mlcc.server.auth.allowed_hosts import AllowedHosts
from mlcc.server.auth.key_file import KeyFile
from mlcc.server.auth.keyring import METRICS_PATH, ApiKeyAuth, Keyring
from mlcc.server.auth.owners import OWNER_TABLE, Owners
from mlcc.server.auth.rate_limit import RateLimiter
from mlcc.server.docs_page import reference_page
from mlcc.server.http.drain import DrainGate, DrainState
from mlcc.server.http.errors import error_response_for, path_of
from mlcc.server.observability.metrics import Metrics
from mlcc.server.observability.request_log import RequestLog
from mlcc.server.observability.traces import Traces
from mlcc.server.openapi import components, operation
from mlcc.server.prompts.body_reader import BodyOffload, BodyReader
from mlcc.service.engine_client import EngineClient, Observer, ObserverGroup
from mlcc.service.http.routes import HEALTH, KSERVE_LIVE, KSERVE_READY, READY, ROUTES, Route
from mlcc.service.served_model import Models
from mlcc.service.service import Service

PUBLIC = (HEALTH, READY, KSERVE_LIVE, KSERVE_READY)
"""Routes that need no API key, so that monitoring can use them. Neither does the OpenAPI document:
it reveals nothing that mlcc's sources do not."""

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
ABOUT = "A language model behind OpenAI's API. A field that is not built is refused by name."


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
) -> FastAPI:
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
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
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
    app = Api(
        title="mlcc",
        version=__version__,
        description=ABOUT,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
        lifespan=lifespan,
        openapi_url=None,  # FastAPI would build it in the event loop
        docs_url=None,  # FastAPI's two pages load their scripts from another host
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.router.routes.extend(more)
    for route in ROUTES:
        _add(app, route, service_app, [Depends(key.identify if route in PUBLIC else key)])
    for path, show in (("/openapi.json", app.show_openapi), ("/docs", reference_page(app.openapi))):
        app.add_route(path, show, include_in_schema=False)
    app.add_api_route(
        METRICS_PATH, metrics.show, include_in_schema=False, dependencies=[Depends(key)]
    )
    app.mount("/", FallbackApp(service_app, key))
    app.add_exception_handler(MlccError, _refuse)
    # From innermost to outermost.
    app.add_middleware(DrainGate, drain_state=drain_state or DrainState())
    app.add_middleware(AllowedHosts, names=settings.hosts, origins=settings.cors_origins)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=EXPOSED,
        )
    app.add_middleware(RequestLog, listeners=[metrics, *([traces] if traces else [])])
    app.add_middleware(RootPath, root=settings.root_path)
    return app


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


class Api(FastAPI):
    """FastAPI with the schemas of our tables; FastAPI's own come from Python classes."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; built once."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title,
                version=self.version,
                description=self.description,
                routes=self.routes,
                servers=self.servers,
            )
            document.setdefault("components", {})["schemas"] = components(ROUTES)
            self.openapi_schema = document
        return self.openapi_schema

    def show_openapi(self, request: HttpRequest) -> JSONResponse:
        """The endpoint /openapi.json. Not a coroutine, so that it runs in a thread: building the
        document takes longer than a stream should wait."""
        return JSONResponse(self.openapi())


class FallbackApp:
    """Everything without a route: the service answers 404, but only after the API key was checked,
    so that strangers cannot probe for routes."""

    def __init__(self, service_app: ServiceApp, key: ApiKeyAuth) -> None:
        self._service_app = service_app
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose(reason="this server speaks HTTP only")(scope, receive, send)
            return
        is_public = path_of(scope) in [route.path for route in PUBLIC]
        await (self._key.identify if is_public else self._key)(HttpRequest(scope))
        await ServiceResponse(self._service_app)(scope, receive, send)


def _add(app: FastAPI, route: Route, service_app: ServiceApp, dependencies: list[Any]) -> None:
    async def endpoint() -> HttpResponse:
        return ServiceResponse(service_app)

    path = re.sub(r"\}$", ":path}", route.path)
    words = re.findall(r"\w+", route.path)
    app.add_api_route(
        path,
        endpoint,
        methods=[route.method],
        summary=route.summary,
        operation_id="_".join([route.method.lower(), *words]),
        dependencies=dependencies,
        response_model=None,
        openapi_extra=operation(route),
    )


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
