"""Finds the route of a request, and the handler of a route.

A protocol's module is imported when one of its routes is first requested: most services are used
through one protocol.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module

from mlcc.api.errors import MethodError, NotFoundError
from mlcc.errors import MlccError
from mlcc.service.batches import Batches
from mlcc.service.http import routes as at
from mlcc.service.http.not_built import not_built
from mlcc.service.http.routes import Route
from mlcc.service.http.types import (
    ApiRequest,
    ApiResponse,
    error_response,
    kserve_error_response,
)
from mlcc.service.served_model import Models, ServedModel

Handler = Callable[[ServedModel, ApiRequest], Awaitable[ApiResponse]]
Handlers = Mapping[Route, Handler]
ServiceHandler = Callable[[Models, ApiRequest], Awaitable[ApiResponse]]
"""Handler of a route that concerns no single model."""
ServiceHandlers = Mapping[Route, ServiceHandler]
BatchHandler = Callable[[Batches, ApiRequest], Awaitable[ApiResponse]]
"""Handler of a route that concerns files and batches."""
BatchHandlers = Mapping[Route, BatchHandler]
KNOWN_ROUTES = (
    "there are OpenAI's /v1/chat/completions, /v1/completions and /v1/models, Anthropic's "
    "/v1/messages, Ollama's /api/chat, llama.cpp's /completion, and /health"
)


class Router:
    """The routes; of two that match, the first."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._plain: dict[str, list[Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        for route in routes:
            if "{" in route.path:
                self._patterns.append((_pattern(route.path), route))
            else:
                self._plain.setdefault(route.path, []).append(route)

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route, and the values of its path parameters. Raises NotFoundError, NotBuiltError or
        MethodError."""
        fits = self._fits(path)
        place = f"{method} {path[:80]}"
        if not fits:
            if (refusal := not_built(path)) is not None:
                raise refusal
            raise NotFoundError(f"{place}: no such address; {KNOWN_ROUTES}", code="not_found")
        for route, parameters in fits:
            if route.method == method:
                return route, parameters
        allowed = ", ".join(dict.fromkeys(route.method for route, _ in fits))
        raise MethodError(f"{place}: this address takes {allowed} only", allowed)

    def methods(self, path: str) -> list[str]:
        """Allowed methods of a path; empty for an unknown path."""
        return [route.method for route, _ in self._fits(path)]

    def pattern(self, path: str) -> str:
        """The path pattern of a route, "" for an unknown path: one name for all its paths."""
        return next((route.path for route, _ in self._fits(path)), "")

    def errors(self, path: str) -> Callable[[MlccError], ApiResponse]:
        """The shape of errors on this path; of unknown ones KServe's below /v2, where its clients
        read no other, and else OpenAI's."""
        if fits := self._fits(path):
            return fits[0][0].errors
        return kserve_error_response if path.startswith("/v2/") else error_response

    def _fits(self, path: str) -> list[tuple[Route, dict[str, str]]]:
        return [(route, {}) for route in self._plain.get(path, ())] or [
            (route, found.groupdict())
            for pattern, route in self._patterns
            if (found := pattern.fullmatch(path))
        ]


def _pattern(path: str) -> re.Pattern[str]:
    """`{name}` matches a segment, and at the end of a path all that follows; `{model}` may have
    slashes everywhere, as names of the hub have."""
    parts = re.split(r"\{(\w+)\}", path)
    texts, names = parts[::2], parts[1::2]
    last = len(names) - 1

    def match(number: int, name: str) -> str:
        if number == last and not texts[-1]:
            return ".*"
        return ".+" if name == "model" else "[^/]+"

    return re.compile(
        re.escape(texts[0])
        + "".join(
            f"(?P<{name}>{match(number, name)})" + re.escape(text)
            for number, (name, text) in enumerate(zip(names, texts[1:], strict=True))
        ),
        re.DOTALL,
    )


MODULES: dict[str, tuple[Route, ...]] = {
    "mlcc.service.protocols.openai": (
        at.CHAT_COMPLETIONS, at.COMPLETIONS, at.MODELS, at.MODEL, at.HEALTH, at.READY,
    ),
    "mlcc.service.protocols.responses": (
        at.RESPONSE_CREATE, at.RESPONSE_TOKENS, at.RESPONSE_INPUT, at.RESPONSE_CANCEL, at.RESPONSE,
        at.RESPONSE_DELETE,
    ),
    "mlcc.service.protocols.encoders": (
        at.EMBEDDINGS, at.SCORE_V1, at.SCORE_PLAIN, at.RERANK_V1, at.RERANK_V2, at.RERANK_PLAIN,
        at.CLASSES,
    ),
    "mlcc.service.protocols.audio": (at.TRANSCRIPTIONS, at.TRANSLATIONS),
    "mlcc.service.protocols.files": (
        at.FILE_CREATE, at.FILES, at.FILE, at.FILE_CONTENT, at.FILE_DELETE,
    ),
    "mlcc.service.protocols.batches": (
        at.BATCH_CREATE, at.BATCHES, at.BATCH, at.BATCH_CANCEL,
    ),
    "mlcc.service.protocols.messages": (at.ANTHROPIC_MESSAGES, at.ANTHROPIC_COUNT),
    "mlcc.service.protocols.ollama": (at.OLLAMA_CHAT, at.OLLAMA_GENERATE),
    "mlcc.service.protocols.ollama_models": (
        at.OLLAMA_ROOT, at.OLLAMA_VERSION, at.OLLAMA_TAGS, at.OLLAMA_PS, at.OLLAMA_SHOW,
        at.OLLAMA_PULL, at.OLLAMA_EMBED, at.OLLAMA_EMBEDDINGS, *at.OLLAMA_REFUSED,
    ),
    "mlcc.service.protocols.llamacpp": (
        at.LLAMACPP_COMPLETION, at.LLAMACPP_COMPLETIONS, at.LLAMACPP_INFILL, at.LLAMACPP_EMBEDDING,
        at.LLAMACPP_PROPS, at.LLAMACPP_SLOTS,
    ),
    "mlcc.service.protocols.tokens": (at.TOKENIZE, at.DETOKENIZE, at.APPLY_TEMPLATE),
    "mlcc.service.protocols.tgi": at.TGI,
    "mlcc.service.protocols.kserve": tuple(
        route for route in at.KSERVE if route not in (*at.KSERVE_TEXT, *at.KSERVE_STATISTICS)
    ),
    "mlcc.service.protocols.kserve_generate": at.KSERVE_TEXT,
    "mlcc.service.protocols.kserve_statistics": at.KSERVE_STATISTICS,
    "mlcc.service.protocols.management": (at.LOAD, at.UNLOAD),
    "mlcc.service.protocols.sleep": (at.SLEEP, at.WAKE_UP, at.IS_SLEEPING),
    "mlcc.service.protocols.lora": (at.LORA_LOAD, at.LORA_UNLOAD),
}  # fmt: skip
"""Each module has `HANDLERS` for routes of one model, `SERVICE_HANDLERS` for routes of the service,
`BATCH_HANDLERS` for routes of files and batches, or several."""
_OF = {route: module for module, routes in MODULES.items() for route in routes}


def handler(route: Route) -> Handler | None:
    """The handler for one model; None = the route belongs to the service."""
    found: Handlers = getattr(import_module(_OF[route]), "HANDLERS", {})
    return found.get(route)


def service_handler(route: Route) -> ServiceHandler | None:
    """The handler for the service; None = the route belongs to a model."""
    found: ServiceHandlers = getattr(import_module(_OF[route]), "SERVICE_HANDLERS", {})
    return found.get(route)


def batch_handler(route: Route) -> BatchHandler | None:
    """The handler for files and batches; None = the route does not concern them."""
    found: BatchHandlers = getattr(import_module(_OF[route]), "BATCH_HANDLERS", {})
    return found.get(route)
