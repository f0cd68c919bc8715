"""The FastAPI application: the API's addresses, its description, and the life of its engine's
client.

Addresses and their description are printed from tables (`mlcc.service.http.routes`, `openapi.py`);
what they answer is `mlcc.service`'s, and FastAPI checks no body a second time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from mlcc import __version__
from mlcc.errors import MlccError
from mlcc.server.asgi import ServiceApp, ServiceResponse, Settings
from mlcc.server.auth.allowed_hosts import AllowedHosts
from mlcc.server.auth.key_file import KeyFile
from mlcc.server.auth.keyring import ApiKeyAuth, Keyring
from mlcc.server.auth.rate_limit import RateLimiter
from mlcc.server.docs_page import reference_page
from mlcc.server.http.drain import DrainGate, DrainState
from mlcc.server.http.errors import error_response_for, path_of
from mlcc.server.observability.metrics import Metrics
from mlcc.server.observability.request_log import RequestLog
from mlcc.server.observability.traces import Traces
from mlcc.server.openapi import components, operation
from mlcc.service.http.routes import ADDRESSES, HEALTH, READY, Address
from mlcc.service.jobs.engine_client import EngineClient
from mlcc.service.model_port import Models
from mlcc.service.observer import Observer, Several
from mlcc.service.service import Service

PUBLIC = (HEALTH, READY)
"""Need no key, so that whatever watches the server can ask. The description needs none either: it
says nothing that the sources of mlcc do not."""

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
"""Headers that pages of other origins may read."""
ABOUT = "A language model behind OpenAI's API. A field that is not built is refused by name."


class Backend(Protocol):
    """The models, and their life within the server's."""

    models: Models

    def clients(self) -> Mapping[str, EngineClient]:
        """The engines that there are now, by the name of their model."""

    def observe(self, observer: Callable[[str], Observer], /) -> None:
        """Who hears of a model's answers, by its name. To be called before `start`."""

    async def start(self) -> None:
        """In the event loop, before the first request."""

    async def stop(self) -> None:
        """After the last one. Idempotent."""


def create_app(
    place: Backend,
    settings: Settings,
    when_ready: Callable[[], None] = lambda: None,
    more: Sequence[BaseRoute] = (),
    traffic: DrainState | None = None,
) -> FastAPI:
    """The application. `more` are addresses beside the API's.

    Raises MlccError if the file of keys is not good, or traces cannot be sent.
    """
    rates, metrics = RateLimiter(), Metrics(place.clients)
    place.observe(lambda model: Several(rates, metrics.of(model)))
    traces = Traces() if settings.traces else None
    file = KeyFile(settings.api_key_file) if settings.api_key_file else None
    key = ApiKeyAuth(Keyring(settings.api_keys, file), rates)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await place.start()
        when_ready()
        yield
        await place.stop()
        if traces is not None:
            await asyncio.to_thread(traces.close)

    adapter = ServiceApp(Service(place.models, settings.bounds), settings)
    app = Api(
        title="mlcc",
        version=__version__,
        description=ABOUT,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
        lifespan=lifespan,
        docs_url=None,  # these two pages of FastAPI's load their scripts from another host
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.router.routes.extend(more)
    for address in ADDRESSES:
        _add(app, address, adapter, [] if address in PUBLIC else [Depends(key)])
    app.add_route("/docs", reference_page(app.openapi), include_in_schema=False)
    app.add_api_route(
        "/metrics", metrics.show, include_in_schema=False, dependencies=[Depends(key)]
    )
    app.mount("/", FallbackApp(adapter, key))
    app.add_exception_handler(MlccError, _refuse)
    # From the innermost to the outermost.
    app.add_middleware(DrainGate, traffic=traffic or DrainState())
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


class Api(FastAPI):
    """FastAPI with the schemas of our tables; its own come from Python classes of bodies."""

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = get_openapi(
                title=self.title,
                version=self.version,
                description=self.description,
                routes=self.routes,
                servers=self.servers,
            )
            self.openapi_schema.setdefault("components", {})["schemas"] = components(ADDRESSES)
        return self.openapi_schema


class FallbackApp:
    """All that has no address of its own, refused by the service as everywhere, but after the key:
    who has none learns of no address."""

    def __init__(self, adapter: ServiceApp, key: ApiKeyAuth) -> None:
        self._adapter = adapter
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose(reason="this server speaks HTTP only")(scope, receive, send)
            return
        if path_of(scope) not in [address.path for address in PUBLIC]:
            await self._key(HttpRequest(scope))
        await ServiceResponse(self._adapter)(scope, receive, send)


def _add(app: FastAPI, address: Address, adapter: ServiceApp, dependencies: list[Any]) -> None:
    async def endpoint() -> HttpResponse:
        return ServiceResponse(adapter)

    path = re.sub(r"\}$", ":path}", address.path)
    words = re.findall(r"\w+", address.path)
    app.add_api_route(
        path,
        endpoint,
        methods=[address.method],
        summary=address.about,
        operation_id="_".join([address.method.lower(), *words]),
        dependencies=dependencies,
        response_model=None,
        openapi_extra=operation(address),
    )


class RootPath:
    """ASGI middleware: what a proxy has put before the paths, whether it takes that away again or
    not."""

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
