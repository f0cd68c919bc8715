"""Dispatches requests to the handlers of their routes. Every failure becomes a response in the
shape of the request's protocol, so that all transports answer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from mlcc.api.errors import internal_error
from mlcc.api.schema.schema import Text
from mlcc.errors import InvalidRequestError, MlccError
from mlcc.service.batches import Batches, no_batches
from mlcc.service.http.router import Router, batch_handler, handler, service_handler
from mlcc.service.http.routes import ROUTES, Route
from mlcc.service.http.types import (
    ApiRequest,
    ApiResponse,
    ParsedBody,
    Whole,
    error_response,
    read_json,
)
from mlcc.service.served_model import Lease, Models, ServiceBounds


class Service:
    """The endpoints of a service with its models."""

    def __init__(self, models: Models, bounds: ServiceBounds | None = None) -> None:
        self._models = models
        self.batches: Batches | None = None
        """Files and batches; None = this host keeps none."""
        self._bounds = bounds or ServiceBounds()
        self._routes = Router(ROUTES)

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """The response. Raises nothing but asyncio's CancelledError, which ends the work."""
        errors: Callable[[MlccError], ApiResponse] | None = None
        try:
            route, parameters = self._routes.find(request.method, request.path)
            errors = route.errors
            request = replace(
                request, parameters=parameters, any_content_type=route.any_content_type
            )
            return await self._ask(route, request)
        except MlccError as error:
            return (errors or self._routes.errors(request.path))(error)
        except Exception:
            import traceback

            traceback.print_exc()
            return (errors or error_response)(internal_error())

    async def _ask(self, route: Route, request: ApiRequest) -> ApiResponse:
        if (keeper := batch_handler(route)) is not None:
            if self.batches is None:
                raise no_batches()
            return await keeper(self.batches, request)
        answer = handler(route)
        if answer is None:
            place = service_handler(route)
            assert place is not None  # each address has one of both
            return await place(self._models, request)
        if served := self._models.only:
            return await answer(served, request)
        request, name = await self._meant(route, request)
        lease = await self._models.lease(name)
        try:
            response = await answer(lease.served, request)
        except BaseException:
            lease.release()
            raise
        return _leased(response, lease)

    async def _meant(self, route: Route, request: ApiRequest) -> tuple[ApiRequest, str | None]:
        """The request with its body read, and the model that it names. Raises InvalidRequestError
        for a body that names none, where there are several."""
        if route.form:
            from mlcc.service.protocols.audio import read_form

            form = await read_form(request)
            return replace(request, parsed=ParsedBody(form)), form[0].model
        if (named := request.parameters.get("model")) is not None:  # in the path
            return request, named
        queried = parse_qs(request.query).get("model", [None])[0]
        if route.body is None:
            return request, queried
        body = await read_json(request, self._bounds.max_body_bytes)
        name = _model_of(body) or queried
        if name is None:
            names = ", ".join(f"'{entry.name}'" for entry in self._models.entries()[:8])
            raise InvalidRequestError(
                f"'model' is missing, and there are several here; say which: {names}",
                param="model",
                code="missing_required_parameter",
            )
        return replace(request, parsed=ParsedBody(body)), name


def _model_of(body: Any) -> str | None:
    """The model's name, by any protocol's field. Raises InvalidRequestError unless it is a text."""
    fields = body if isinstance(body, dict) else {}
    name = fields.get("model") or fields.get("name")  # Ollama's older clients
    return Text().check(name, "model") if isinstance(name, str) and name else None


def _leased(response: ApiResponse, lease: Lease) -> ApiResponse:
    """Keep the model loaded until a stream ends."""
    if isinstance(response.body, Whole):
        lease.release()
        return response

    def close() -> None:
        response.close()
        lease.release()

    return replace(response, close=close)
