"""The addresses of the API as a table: what each takes and gives, by name of `mlcc.api`'s tables.

`endpoints.py` answers them; a transport that describes itself (the server's /openapi.json) reads
them from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.api.fields import CHAT, COMPLETION
from mlcc.api.management import NAMED_MODEL
from mlcc.api.schema import Object
from mlcc.errors import MlccError
from mlcc.service.exchange import ApiResponse, error_response


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
MODELS = Address("GET", "/v1/models", "The models, loaded or not.", "ModelList")
MODEL = Address("GET", "/v1/models/{name}", "A model, by one of its names.", "Model")
LOAD = Address("POST", "/models/load", "Load a model before it is asked for.", "Model", NAMED_MODEL)
UNLOAD = Address("POST", "/models/unload", "Give a model's memory back.", "Model", NAMED_MODEL)
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
ADDRESSES = (CHAT_COMPLETIONS, COMPLETIONS, MODELS, MODEL, LOAD, UNLOAD, HEALTH, READY)
