"""Response types of Ollama's API. `answer.py` and `models.py` fill them.

Ollama's reference documents the fields; times are nanoseconds.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class _Ends(TypedDict, total=False):
    done_reason: Literal["stop", "length", "load"]
    total_duration: int
    load_duration: int
    prompt_eval_count: int
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int
    logprobs: list[Any]


class _Says(TypedDict, total=False):
    thinking: str
    tool_calls: list[Any]


class OllamaAnswerMessage(_Says):
    """The message of one line, or of the whole answer."""

    role: Literal["assistant"]
    content: str


class OllamaChatLine(_Ends):
    """A line of /api/chat, or its whole answer."""

    model: str
    created_at: str
    message: OllamaAnswerMessage
    done: bool


class OllamaGenerateLine(_Ends, total=False):
    """A line of /api/generate, or its whole answer."""

    model: str
    created_at: str
    response: str
    thinking: str
    done: bool


class OllamaDetails(TypedDict):
    """Family, format and quantization of a model."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class _Loaded(TypedDict, total=False):
    modified_at: str
    expires_at: str
    size_vram: int
    context_length: int


class OllamaModelEntry(_Loaded):
    """A model of /api/tags and /api/ps."""

    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaModels(TypedDict):
    """The answer of /api/tags and /api/ps."""

    models: list[OllamaModelEntry]


class OllamaModel(TypedDict):
    """The answer of /api/show."""

    modelfile: str
    parameters: str
    template: str
    license: str
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class OllamaVersion(TypedDict):
    """The answer of /api/version."""

    version: str
    mlcc: str


class OllamaProgress(TypedDict):
    """A line of /api/pull."""

    status: str


class OllamaError(TypedDict):
    """The text of an error."""

    error: str


class OllamaEmbeddings(TypedDict):
    """The answer of /api/embed."""

    model: str
    embeddings: list[list[float]]
    """One embedding for each text, of length 1."""
    total_duration: int
    """Nanoseconds."""
    load_duration: int
    prompt_eval_count: int


class OllamaEmbedding(TypedDict):
    """The answer of /api/embeddings."""

    embedding: list[float]
