"""The ASGI application: the API of one model, and the life of its engine's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from mlcc.model import ModelText
from mlcc.server.adapter import Adapter, Settings
from mlcc.server.client import ProcessClient
from mlcc.service.endpoints import Service


def create_app(
    engine: ProcessClient,
    text: ModelText,
    settings: Settings,
    when_ready: Callable[[], None] = lambda: None,
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """The application for one model. The engine's process belongs to the caller.

    `more` are addresses beside the API's.

    Templates are rendered in threads: they are strangers' programs, and may take their time.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        engine.start()
        when_ready()
        yield
        engine.stop()

    service = Service(engine, text, settings.bounds, asyncio.to_thread)
    return Starlette(routes=[*more, Mount("/", Adapter(service, settings))], lifespan=lifespan)
