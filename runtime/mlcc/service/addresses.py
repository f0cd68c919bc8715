"""The addresses of the API as a table: what each takes and gives, by name of `mlcc.api`'s tables.

`endpoints.py` answers them; a transport that describes itself (the server's /openapi.json) reads
them from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.api.anthropic.fields import COUNT_TOKENS, MESSAGES
from mlcc.api.fields import CHAT, COMPLETION
from mlcc.api.schema import Object
from mlcc.errors import MlccError
from mlcc.service.exchange import ApiResponse, anthropic_error_response, error_response


@dataclass(frozen=True, eq=False)
class Address:
    """One row. `{name}` in a path is a segment, and at its end all that follows."""

    method: str
    path: str
    about: str
    gives: str
    """Name of a class in `mlcc.api.shapes`; "" for what has no fixed shape."""
    takes: Object | None = None
    streams: str = ""
    """The same of each event, for what can be streamed."""
    errors: Callable[[MlccError], ApiResponse] = error_response
    """A refusal or failure in the shape of the address's protocol."""


HEALTH = Address("GET", "/health", "Whether the engine lives, and its counters.", "")
READY = Address("GET", "/ready", "Whether what is asked now is answered now.", "")
MODELS = Address("GET", "/v1/models", "The models: there is one.", "ModelList")
MODEL = Address("GET", "/v1/models/{name}", "The model, by its name.", "Model")
CHAT_COMPLETIONS = Address(
    "POST",
    "/v1/chat/completions",
    "Answer a conversation.",
    "ChatCompletion",
    CHAT,
    "ChatCompletionChunk",
)
COMPLETIONS = Address(
    "POST", "/v1/completions", "Continue texts.", "Completion", COMPLETION, "CompletionChunk"
)
ANTHROPIC_MESSAGES = Address(
    "POST",
    "/v1/messages",
    "Answer a conversation, as Anthropic's API does.",
    "AnthropicAnswer",
    MESSAGES,
    "AnthropicEvent",
    anthropic_error_response,
)
ANTHROPIC_COUNT = Address(
    "POST",
    "/v1/messages/count_tokens",
    "Count the tokens of a conversation.",
    "AnthropicTokenCount",
    COUNT_TOKENS,
    errors=anthropic_error_response,
)
ADDRESSES = (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    ANTHROPIC_MESSAGES,
    ANTHROPIC_COUNT,
    MODELS,
    MODEL,
    HEALTH,
    READY,
)


def errors_of(path: str) -> Callable[[MlccError], ApiResponse]:
    """The shape of what is refused at a path before its address is looked for, for want of a key
    say."""
    return next((one.errors for one in ADDRESSES if one.path == path), error_response)
