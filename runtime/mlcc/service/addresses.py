"""The addresses of the API as a table: what each takes and gives, by name of `mlcc.api`'s tables.

`endpoints.py` answers them; a transport that describes itself (the server's /openapi.json) reads
them from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.api.fields import CHAT, COMPLETION
from mlcc.api.schema import Object


@dataclass(frozen=True, eq=False)
class Address:
    """One row. `{name}` at the end of a path stands for all that follows."""

    method: str
    path: str
    about: str
    gives: str
    """Name of a class in `mlcc.api.shapes`; "" for what has no fixed shape."""
    takes: Object | None = None
    streams: str = ""
    """The same of each event, for what can be streamed."""


HEALTH = Address("GET", "/health", "Whether the engine lives, and its counters.", "")
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
ADDRESSES = (CHAT_COMPLETIONS, COMPLETIONS, MODELS, MODEL, HEALTH)
