"""Which address a request is for. Knows no handler and no protocol."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from mlcc.api.errors import MethodError, NotFoundError
from mlcc.errors import MlccError
from mlcc.service.generate import Core
from mlcc.service.http.routes import Address
from mlcc.service.http.types import ApiRequest, ApiResponse, error_response
from mlcc.service.model_port import Models

Handler = Callable[[Core, ApiRequest], Awaitable[ApiResponse]]
Handlers = Mapping[Address, Handler]
PlaceHandler = Callable[[Models, ApiRequest], Awaitable[ApiResponse]]
"""Of an address that is asked of no one model."""
PlaceHandlers = Mapping[Address, PlaceHandler]
PLACES = (
    "there are OpenAI's /v1/chat/completions, /v1/completions and /v1/models, Anthropic's "
    "/v1/messages, Ollama's /api/chat, llama.cpp's /completion, and /health"
)


class Routes:
    """The addresses that there are; of two that fit, the one that is named first."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._plain: dict[str, list[Address]] = {}
        self._patterns: list[tuple[re.Pattern[str], Address]] = []
        for address in addresses:
            if "{" in address.path:
                self._patterns.append((_pattern(address.path), address))
            else:
                self._plain.setdefault(address.path, []).append(address)

    def find(self, method: str, path: str) -> tuple[Address, dict[str, str]]:
        """The address, and what stands in its braces. Raises NotFoundError or MethodError."""
        fits = self._fits(path)
        place = f"{method} {path[:80]}"
        if not fits:
            raise NotFoundError(f"{place}: no such address; {PLACES}", code="not_found")
        for address, parameters in fits:
            if address.method == method:
                return address, parameters
        allowed = ", ".join(dict.fromkeys(address.method for address, _ in fits))
        raise MethodError(f"{place}: this address takes {allowed} only", allowed)

    def methods(self, path: str) -> list[str]:
        """Those that an address is for; none where there is no address."""
        return [address.method for address, _ in self._fits(path)]

    def pattern(self, path: str) -> str:
        """The address with its braces, "" where there is none: one name for all that it is for."""
        return next((address.path for address, _ in self._fits(path)), "")

    def errors(self, path: str) -> Callable[[MlccError], ApiResponse]:
        """How an error is said there; elsewhere as OpenAI does."""
        if fits := self._fits(path):
            return fits[0][0].errors
        return error_response

    def _fits(self, path: str) -> list[tuple[Address, dict[str, str]]]:
        return [(address, {}) for address in self._plain.get(path, ())] or [
            (address, found.groupdict())
            for pattern, address in self._patterns
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
