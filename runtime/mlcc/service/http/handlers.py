"""Who answers which address: a protocol's file is imported when one of its addresses is asked for,
since most places are asked in one protocol alone.
"""

from __future__ import annotations

from importlib import import_module

from mlcc.service.http import routes as at
from mlcc.service.http.router import Handler, Handlers, ServiceHandler, ServiceHandlers
from mlcc.service.http.routes import Route

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
    ),
    "mlcc.service.protocols.messages": (at.ANTHROPIC_MESSAGES, at.ANTHROPIC_COUNT),
    "mlcc.service.protocols.ollama": (at.OLLAMA_CHAT, at.OLLAMA_GENERATE),
    "mlcc.service.protocols.ollama_models": (
        at.OLLAMA_HEAD, at.OLLAMA_VERSION, at.OLLAMA_TAGS, at.OLLAMA_PS, at.OLLAMA_SHOW,
        at.OLLAMA_PULL, at.OLLAMA_EMBED, at.OLLAMA_EMBEDDINGS, *at.OLLAMA_REFUSED,
    ),
    "mlcc.service.protocols.llamacpp": (
        at.LLAMACPP_COMPLETION, at.LLAMACPP_COMPLETIONS, at.LLAMACPP_INFILL, at.LLAMACPP_EMBEDDING,
        at.LLAMACPP_PROPS, at.LLAMACPP_SLOTS,
    ),
    "mlcc.service.protocols.tokens": (at.TOKENIZE, at.DETOKENIZE, at.APPLY_TEMPLATE),
    "mlcc.service.protocols.management": (at.LOAD, at.UNLOAD),
    "mlcc.service.protocols.lora": (at.LORA_LOAD, at.LORA_UNLOAD),
}  # fmt: skip
"""Each has `HANDLERS`, of what is asked of one model: which one, is known when they are called; or
`PLACE_HANDLERS`, of what is asked of the place that has the models; or both."""
_OF = {route: module for module, routes in MODULES.items() for route in routes}


def handler(route: Route) -> Handler | None:
    """What answers it for one model; None = the place answers."""
    found: Handlers = getattr(import_module(_OF[route]), "HANDLERS", {})
    return found.get(route)


def service_handler(route: Route) -> ServiceHandler | None:
    """What answers it for the place; None = one model does."""
    found: ServiceHandlers = getattr(import_module(_OF[route]), "SERVICE_HANDLERS", {})
    return found.get(route)
