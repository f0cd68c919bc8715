"""Which address a request is for. Knows no handler and no protocol."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from mlcc.api.errors import MethodError, NotFoundError
from mlcc.errors import MlccError
from mlcc.service.generate import ServedModel
from mlcc.service.http.routes import Route
from mlcc.service.http.types import ApiRequest, ApiResponse, error_response
from mlcc.service.model_port import Models

Handler = Callable[[ServedModel, ApiRequest], Awaitable[ApiResponse]]
Handlers = Mapping[Route, Handler]
ServiceHandler = Callable[[Models, ApiRequest], Awaitable[ApiResponse]]
"""Of an address that is asked of no one model."""
ServiceHandlers = Mapping[Route, ServiceHandler]
KNOWN_ROUTES = (
    "there are OpenAI's /v1/chat/completions, /v1/completions and /v1/models, Anthropic's "
    "/v1/messages, Ollama's /api/chat, llama.cpp's /completion, and /health"
)


class Router:
    """The addresses that there are; of two that fit, the one that is named first."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._plain: dict[str, list[Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        for route in routes:
            if "{" in route.path:
                self._patterns.append((_pattern(route.path), route))
            else:
                self._plain.setdefault(route.path, []).append(route)

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The address, and what stands in its braces. Raises NotFoundError or MethodError."""
        fits = self._fits(path)
        place = f"{method} {path[:80]}"
        if not fits:
            raise NotFoundError(f"{place}: no such address; {KNOWN_ROUTES}", code="not_found")
        for route, parameters in fits:
            if route.method == method:
                return route, parameters
        allowed = ", ".join(dict.fromkeys(route.method for route, _ in fits))
        raise MethodError(f"{place}: this address takes {allowed} only", allowed)

    def methods(self, path: str) -> list[str]:
        """Those that an address is for; none where there is no address."""
        return [route.method for route, _ in self._fits(path)]

    def pattern(self, path: str) -> str:
        """The address with its braces, "" where there is none: one name for all that it is for."""
        return next((route.path for route, _ in self._fits(path)), "")

    def errors(self, path: str) -> Callable[[MlccError], ApiResponse]:
        """How an error is said there; elsewhere as OpenAI does."""
        if fits := self._fits(path):
            return fits[0][0].errors
        return error_response

    def _fits(self, path: str) -> list[tuple[Route, dict[str, str]]]:
        return [(route, {}) for route in self._plain.get(path, ())] or [
            (route, found.groupdict())
            for pattern, route in self._patterns
            if (found := pattern.fullmatch(path))
        ]


def _pattern(path: str) -> re.Pattern[str]:
    """`{name}` is a segment, and at the end of a path all that follows."""
    parts = re.split(r"\{(\w+)\}", path)
    texts, names = parts[::2], parts[1::2]
    last = len(names) - 1
    return re.compile(
        re.escape(texts[0])
        + "".join(
            f"(?P<{name}>{'.*' if number == last and not texts[-1] else '[^/]+'})" + re.escape(text)
            for number, (name, text) in enumerate(zip(names, texts[1:], strict=True))
        ),
        re.DOTALL,
    )
