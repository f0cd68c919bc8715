"""The FastAPI application: the API's addresses, its description, and the life of its engine's
client.

Addresses and their description are printed from tables (`mlcc.service.addresses`, `openapi.py`);
what they answer is `mlcc.service`'s, and FastAPI checks no body a second time.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from mlcc import __version__
from mlcc.errors import MlccError
from mlcc.server.adapter import Adapter, Answering, Settings, plain_response
from mlcc.server.hosts import AllowedHosts
from mlcc.server.keys import Key
from mlcc.server.openapi import components, operation
from mlcc.server.reference import reference_page
from mlcc.service.addresses import ADDRESSES, HEALTH, Address, errors_of
from mlcc.service.endpoints import Service
from mlcc.service.models import Models

OPEN = (HEALTH,)
"""Needs no key, so that whatever watches the server can ask. The description needs none either: it
says nothing that the sources of mlcc do not."""

ABOUT = "A language model behind OpenAI's API. A field that is not built is refused by name."


class Place(Protocol):
    """The models, and their life within the server's."""

    models: Models

    async def start(self) -> None:
        """In the event loop, before the first request."""

    async def stop(self) -> None:
        """After the last one. Idempotent."""


def create_app(
    place: Place,
    settings: Settings,
    when_ready: Callable[[], None] = lambda: None,
    more: Sequence[BaseRoute] = (),
) -> FastAPI:
    """The application. `more` are addresses beside the API's."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await place.start()
        when_ready()
        yield
        await place.stop()

    adapter = Adapter(Service(place.models, settings.bounds), settings)
    app = Api(
        title="mlcc",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # these two pages of FastAPI's load their scripts from another host
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.router.routes.extend(more)
    key = Key(settings.api_keys)
    for address in ADDRESSES:
        _add(app, address, adapter, [] if address in OPEN else [Depends(key)])
    app.add_route("/docs", reference_page(app.openapi), include_in_schema=False)
    app.mount("/", Elsewhere(adapter, key))
    app.add_exception_handler(MlccError, _refuse)
    app.add_middleware(AllowedHosts, names=settings.hosts)
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
            )
            self.openapi_schema.setdefault("components", {})["schemas"] = components(ADDRESSES)
        return self.openapi_schema


class Elsewhere:
    """All that has no address of its own, refused by the service as everywhere, but after the key:
    who has none learns of no address."""

    def __init__(self, adapter: Adapter, key: Key) -> None:
        self._adapter = adapter
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose(reason="this server speaks HTTP only")(scope, receive, send)
            return
        if scope["path"] not in [address.path for address in OPEN]:
            await self._key(HttpRequest(scope))
        await Answering(self._adapter)(scope, receive, send)


def _add(app: FastAPI, address: Address, adapter: Adapter, dependencies: list[Any]) -> None:
    async def endpoint() -> HttpResponse:
        return Answering(adapter)

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


async def _refuse(request: HttpRequest, error: Exception) -> HttpResponse:
    assert isinstance(error, MlccError)
    return plain_response(errors_of(request.scope["path"])(error))
