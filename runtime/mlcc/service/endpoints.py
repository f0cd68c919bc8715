"""All addresses of the service, answered. Every failure becomes a response here, in the shape of
the protocol that was spoken, so that each transport answers it alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mlcc.api.errors import internal_error
from mlcc.errors import MlccError
from mlcc.model.model import ModelText
from mlcc.service.addresses import ADDRESSES
from mlcc.service.core import Core, ServiceBounds
from mlcc.service.engine import EngineClient
from mlcc.service.exchange import ApiRequest, ApiResponse, error_response
from mlcc.service.kept import Kept
from mlcc.service.prompts import Prompts
from mlcc.service.protocols import (
    encoders,
    llamacpp,
    messages,
    ollama,
    ollama_models,
    openai,
    responses,
    tokens,
)
from mlcc.service.routes import Handlers, Routes

HANDLERS: Handlers = {
    **openai.HANDLERS,
    **responses.HANDLERS,
    **encoders.HANDLERS,
    **tokens.HANDLERS,
    **messages.HANDLERS,
    **ollama.HANDLERS,
    **ollama_models.HANDLERS,
    **llamacpp.HANDLERS,
}


class Service:
    """The endpoints of one model."""

    def __init__(
        self,
        engine: EngineClient,
        text: ModelText,
        bounds: ServiceBounds | None = None,
        prompts: Prompts | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._core = Core(engine, text, bounds, prompts, kept)
        self._routes = Routes(ADDRESSES)

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """The response. Raises nothing but asyncio's CancelledError, which ends the work."""
        errors: Callable[[MlccError], ApiResponse] = error_response
        try:
            address, parameters = self._routes.find(request.method, request.path)
            errors = address.errors
            return await HANDLERS[address](self._core, replace(request, parameters=parameters))
        except MlccError as error:
            return errors(error)
        except Exception:
            import traceback

            traceback.print_exc()
            return errors(internal_error())
