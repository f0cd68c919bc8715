"""The routes of the API as a table: path, request body and response, by the names of `mlcc.api`.

`mlcc.service.service` answers them; the server's /openapi.json is generated from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mlcc.api.anthropic.fields import COUNT_TOKENS, MESSAGES
from mlcc.api.kserve import fields as kserve
from mlcc.api.llamacpp import fields as llamacpp
from mlcc.api.ollama import fields as ollama
from mlcc.api.openai.batches import BATCH as BATCH_BODY
from mlcc.api.openai.embeddings import CLASSIFY, EMBEDDING, RERANK, SCORE
from mlcc.api.openai_responses.fields import COUNT_INPUT, RESPONSES
from mlcc.api.schema.admin_fields import LOAD_LORA as LOAD_LORA_BODY
from mlcc.api.schema.admin_fields import NAMED_MODEL
from mlcc.api.schema.admin_fields import UNLOAD_LORA as UNLOAD_LORA_BODY
from mlcc.api.schema.chat_fields import CHAT, COMPLETION
from mlcc.api.schema.schema import Object
from mlcc.api.tgi import fields as tgi
from mlcc.errors import MlccError
from mlcc.service.http.types import (
    EVENTS_TYPE,
    LINES_TYPE,
    ApiResponse,
    anthropic_error_response,
    error_response,
    kserve_error_response,
    ollama_error_response,
    tgi_error_response,
)

PLAIN_TEXT = "plain text"
"""The response of a route that answers text."""
INFERENCE, ADMIN, ANY_KEY = "inference", "admin", ""
SCOPES = (INFERENCE, ADMIN)
"""What an API key may be for: answers, and changes of what the server serves to all."""


@dataclass(frozen=True, eq=False)
class Route:
    """One row. `{name}` in a path matches a segment, and at its end all that follows; `{model}` may
    have slashes."""

    method: str
    path: str
    summary: str
    response: str
    """Name of a class in `mlcc.api.openai.shapes`, or PLAIN_TEXT; "" for a response without a fixed
    shape."""
    body: Object | None = None
    event: str = ""
    """Name of the class of each event, for routes that can stream."""
    errors: Callable[[MlccError], ApiResponse] = error_response
    """Makes error responses in the shape of the route's protocol."""
    stream_type: str = EVENTS_TYPE.partition(";")[0]
    """Content type of streams."""
    scope: str = INFERENCE
    """The scope that an API key needs, where there are keys."""
    any_content_type: bool = False
    """Whether a body without the content type of JSON is taken from clients that are no web page:
    examples of Ollama's API use curl without a header."""
    form: tuple[str, ...] = ()
    """Fields of a form that is sent instead of JSON; the first is a file."""
    form_options: tuple[str, ...] = ()
    """Fields of it that may be left out."""


HEALTH = Route("GET", "/health", "Whether the engine is alive, and its counters.", "")
READY = Route("GET", "/ready", "Whether requests are answered now.", "")
MODELS = Route("GET", "/v1/models", "The models, loaded or not.", "ModelList", scope=ANY_KEY)
MODEL = Route("GET", "/v1/models/{name}", "A model, by one of its names.", "Model", scope=ANY_KEY)
LOAD = Route("POST", "/models/load", "Load a model in advance.", "Model", NAMED_MODEL, scope=ADMIN)
UNLOAD = Route(
    "POST",
    "/models/unload",
    "Unload a model and free its memory.",
    "Model",
    NAMED_MODEL,
    scope=ADMIN,
)
LORA_LOAD = Route(
    "POST",
    "/v1/load_lora_adapter",
    "Load an adapter (LoRA), as vLLM does.",
    PLAIN_TEXT,
    LOAD_LORA_BODY,
    scope=ADMIN,
)
LORA_UNLOAD = Route(
    "POST",
    "/v1/unload_lora_adapter",
    "Unload an adapter; running requests finish with it.",
    PLAIN_TEXT,
    UNLOAD_LORA_BODY,
    scope=ADMIN,
)
SLEEP = Route("POST", "/sleep", "Free the models' memory, as vLLM does.", PLAIN_TEXT, scope=ADMIN)
WAKE_UP = Route("POST", "/wake_up", "End the sleep, as vLLM does.", PLAIN_TEXT, scope=ADMIN)
IS_SLEEPING = Route("GET", "/is_sleeping", "Whether the server sleeps.", "Sleep", scope=ANY_KEY)
CHAT_COMPLETIONS = Route(
    "POST",
    "/v1/chat/completions",
    "Answer a conversation.",
    "ChatCompletion",
    CHAT,
    "ChatCompletionChunk",
)
COMPLETIONS = Route(
    "POST", "/v1/completions", "Continue texts.", "Completion", COMPLETION, "CompletionChunk"
)
RESPONSE_CREATE = Route(
    "POST",
    "/v1/responses",
    "Answer a conversation, and store it.",
    "ResponsesAnswer",
    RESPONSES,
    "ResponsesEvent",
)
RESPONSE_TOKENS = Route(
    "POST",
    "/v1/responses/input_tokens",
    "Count the tokens of a conversation.",
    "ResponsesTokenCount",
    COUNT_INPUT,
)
RESPONSE_INPUT = Route(
    "GET",
    "/v1/responses/{name}/input_items",
    "The input of a stored answer.",
    "ResponsesItemList",
)
RESPONSE_CANCEL = Route(
    "POST", "/v1/responses/{name}/cancel", "Cancel an answer that is streamed.", "ResponsesAnswer"
)
RESPONSE = Route("GET", "/v1/responses/{name}", "A stored answer.", "ResponsesAnswer")
RESPONSE_DELETE = Route(
    "DELETE", "/v1/responses/{name}", "Delete a stored answer.", "ResponsesDeleted"
)
ANTHROPIC_MESSAGES = Route(
    "POST",
    "/v1/messages",
    "Answer a conversation, as Anthropic's API does.",
    "AnthropicAnswer",
    MESSAGES,
    "AnthropicEvent",
    anthropic_error_response,
)
ANTHROPIC_COUNT = Route(
    "POST",
    "/v1/messages/count_tokens",
    "Count the tokens of a conversation.",
    "AnthropicTokenCount",
    COUNT_TOKENS,
    errors=anthropic_error_response,
)
EMBEDDINGS = Route(
    "POST", "/v1/embeddings", "Compute embeddings of texts.", "EmbeddingList", EMBEDDING
)
SCORE_V1 = Route("POST", "/v1/score", "Score pairs of texts.", "ScoreList", SCORE)
SCORE_PLAIN = replace(SCORE_V1, path="/score")
RERANK_V1 = Route(
    "POST", "/v1/rerank", "Rank documents by relevance to a query.", "Ranking", RERANK
)
RERANK_V2 = replace(RERANK_V1, path="/v2/rerank")
RERANK_PLAIN = replace(RERANK_V1, path="/rerank")
CLASSES = Route("POST", "/classify", "Classify texts, as vLLM does.", "ClassList", CLASSIFY)
FILE_CREATE = Route(
    "POST", "/v1/files", "Upload the lines of a batch.", "StoredFile", form=("file", "purpose")
)
_SPEECH = ("language", "prompt", "response_format", "temperature", "stream", "model")
TRANSCRIPTIONS = Route(
    "POST",
    "/v1/audio/transcriptions",
    "Transcribe speech.",
    "Transcription",
    event="TranscriptEvent",
    form=("file",),
    form_options=(*_SPEECH, "timestamp_granularities[]"),
)
TRANSLATIONS = replace(
    TRANSCRIPTIONS, path="/v1/audio/translations", summary="Translate speech into English."
)
FILES = Route("GET", "/v1/files", "The files of the API key.", "StoredFileList")
FILE_CONTENT = Route("GET", "/v1/files/{name}/content", "The text of a file.", PLAIN_TEXT)
FILE = Route("GET", "/v1/files/{name}", "The record of a file.", "StoredFile")
FILE_DELETE = Route("DELETE", "/v1/files/{name}", "Delete a file.", "FileDeleted")
BATCH_CREATE = Route(
    "POST",
    "/v1/batches",
    "Answer the lines of a file while nothing else is answered.",
    "Batch",
    BATCH_BODY,
)
BATCHES = Route("GET", "/v1/batches", "The batches of the API key.", "BatchList")
BATCH = Route("GET", "/v1/batches/{name}", "A batch and its state.", "Batch")
BATCH_CANCEL = Route("POST", "/v1/batches/{name}/cancel", "End a batch.", "Batch")


def _ollama(
    method: str,
    path: str,
    summary: str,
    response: str,
    body: Object | None = None,
    event: str = "",
    scope: str = INFERENCE,
) -> Route:
    return Route(
        method,
        path,
        summary,
        response,
        body,
        event,
        ollama_error_response,
        LINES_TYPE,
        scope,
        any_content_type=True,
    )


OLLAMA_ROOT = _ollama("GET", "/", "Whether a server is running.", PLAIN_TEXT, scope=ANY_KEY)
OLLAMA_CHAT = _ollama(
    "POST",
    "/api/chat",
    "Answer a conversation, as Ollama's API does.",
    "OllamaChatLine",
    ollama.CHAT,
    "OllamaChatLine",
)
OLLAMA_GENERATE = _ollama(
    "POST",
    "/api/generate",
    "Answer or continue a text, as Ollama's API does.",
    "OllamaGenerateLine",
    ollama.GENERATE,
    "OllamaGenerateLine",
)
OLLAMA_TAGS = _ollama("GET", "/api/tags", "The models.", "OllamaModels", scope=ANY_KEY)
OLLAMA_PS = _ollama("GET", "/api/ps", "The models that are loaded.", "OllamaModels", scope=ANY_KEY)
OLLAMA_SHOW = _ollama("POST", "/api/show", "Details of a model.", "OllamaModel", ollama.NAMED)
OLLAMA_VERSION = _ollama(
    "GET", "/api/version", "Versions of Ollama's API and of mlcc.", "OllamaVersion", scope=ANY_KEY
)
OLLAMA_PULL = _ollama(
    "POST",
    "/api/pull",
    "Fetch a model, on a server of several; of one, whether it is the one.",
    "OllamaProgress",
    ollama.NAMED,
    "OllamaProgress",
    ADMIN,
)
OLLAMA_EMBED = _ollama("POST", "/api/embed", EMBEDDINGS.summary, "OllamaEmbeddings", ollama.EMBED)
OLLAMA_EMBEDDINGS = _ollama(
    "POST", "/api/embeddings", "Compute the embedding of one text.", "OllamaEmbedding", ollama.EMBED
)
OLLAMA_REFUSED = (
    _ollama("POST", "/api/create", "Refused: this server keeps no models.", "", scope=ADMIN),
    _ollama("POST", "/api/copy", "Refused: this server keeps no models.", "", scope=ADMIN),
    _ollama("POST", "/api/push", "Refused: this server keeps no models.", "", scope=ADMIN),
    _ollama("DELETE", "/api/delete", "Refused: this server keeps no models.", "", scope=ADMIN),
)
OLLAMA = (
    OLLAMA_ROOT,
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    OLLAMA_TAGS,
    OLLAMA_PS,
    OLLAMA_SHOW,
    OLLAMA_VERSION,
    OLLAMA_PULL,
    OLLAMA_EMBED,
    OLLAMA_EMBEDDINGS,
    *OLLAMA_REFUSED,
)
LLAMACPP_COMPLETION = Route(
    "POST",
    "/completion",
    "Continue a text, as llama.cpp's server does.",
    "LlamaCompletion",
    llamacpp.COMPLETION,
    "LlamaCompletion",
)
LLAMACPP_COMPLETIONS = replace(LLAMACPP_COMPLETION, path="/completions")
LLAMACPP_INFILL = Route(
    "POST",
    "/infill",
    "Fill the gap between two texts, as llama.cpp's server does.",
    "LlamaCompletion",
    llamacpp.INFILL,
    "LlamaCompletion",
)
LLAMACPP_EMBEDDING = Route(
    "POST",
    "/embedding",
    "Compute embeddings of texts, as llama.cpp's server does.",
    "",
    llamacpp.EMBEDDING,
)
LLAMACPP_PROPS = Route("GET", "/props", "Properties of the server.", "LlamaProps")
LLAMACPP_SLOTS = Route("GET", "/slots", "Slots for answers, and their state.", "")
TOKENIZE = Route(
    "POST", "/tokenize", "The tokens of a text or a conversation.", "Tokens", llamacpp.TOKENIZE
)
DETOKENIZE = Route("POST", "/detokenize", "The text of tokens.", "Detokenized", llamacpp.DETOKENIZE)
APPLY_TEMPLATE = Route(
    "POST",
    "/apply-template",
    "The prompt that a conversation becomes.",
    "AppliedTemplate",
    CHAT,
)
LLAMACPP = (
    LLAMACPP_COMPLETION,
    LLAMACPP_COMPLETIONS,
    LLAMACPP_INFILL,
    LLAMACPP_EMBEDDING,
    LLAMACPP_PROPS,
    LLAMACPP_SLOTS,
    TOKENIZE,
    DETOKENIZE,
    APPLY_TEMPLATE,
)
TGI_GENERATE = Route(
    "POST",
    "/generate",
    "Continue a text, as Hugging Face's TGI does.",
    "TgiAnswer",
    tgi.GENERATE,
    errors=tgi_error_response,
)
TGI_STREAM = Route(
    "POST",
    "/generate_stream",
    "Continue a text as server-sent events, as TGI does.",
    "TgiEvent",
    tgi.GENERATE,
    "TgiEvent",
    tgi_error_response,
)
TGI_ROOT = Route(
    "POST",
    "/",
    "Continue a text, whole in an array or as events: where TGI's clients send it.",
    "",
    tgi.COMPATIBLE,
    "TgiEvent",
    tgi_error_response,
)
TGI_INFO = Route(
    "GET", "/info", "The model, as TGI does.", "TgiInfo", errors=tgi_error_response, scope=ANY_KEY
)
TGI = (TGI_GENERATE, TGI_STREAM, TGI_ROOT, TGI_INFO)
"""Before Ollama's in `ROUTES`: the shape of errors at / has both protocols' fields."""


def _kserve(
    method: str,
    path: str,
    summary: str,
    response: str,
    body: Object | None = None,
    event: str = "",
    scope: str = INFERENCE,
) -> Route:
    """tritonclient sends no content type."""
    return Route(
        method,
        path,
        summary,
        response,
        body,
        event,
        kserve_error_response,
        scope=scope,
        any_content_type=body is not None,
    )


_V2, _OF_VERSION = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
KSERVE_SERVER = _kserve("GET", "/v2", "The server, by KServe's protocol.", "ServerMetadata",
                        scope=ANY_KEY)  # fmt: skip
KSERVE_LIVE = _kserve("GET", "/v2/health/live", "Whether the server is alive.", "ServerLive")
KSERVE_READY = _kserve(
    "GET", "/v2/health/ready", "Whether requests are answered now.", "ServerReady"
)
KSERVE_MODEL = _kserve("GET", _V2, "A model's inputs and outputs.", "ModelMetadata")
KSERVE_MODEL_VERSION = replace(KSERVE_MODEL, path=_OF_VERSION)
KSERVE_MODEL_READY = _kserve(
    "GET", f"{_V2}/ready", "Whether a model is loaded.", "ModelReady", scope=ANY_KEY
)
KSERVE_MODEL_READY_VERSION = replace(KSERVE_MODEL_READY, path=f"{_OF_VERSION}/ready")
KSERVE_CONFIG = _kserve(
    "GET", f"{_V2}/config", "A model's inputs and outputs, as Triton's config.", "TritonConfig"
)
KSERVE_CONFIG_VERSION = replace(KSERVE_CONFIG, path=f"{_OF_VERSION}/config")
KSERVE_STATS = _kserve(
    "GET", f"{_V2}/stats", "How many answers a model has made, as Triton does.", "TritonStatistics"
)
KSERVE_STATS_VERSION = replace(KSERVE_STATS, path=f"{_OF_VERSION}/stats")
KSERVE_STATS_ALL = replace(
    KSERVE_STATS, path="/v2/models/stats", summary="The same of all loaded models."
)
KSERVE_INFER = _kserve(
    "POST", f"{_V2}/infer", "Embeddings, scores or classes of texts.", "InferResponse", kserve.INFER
)
KSERVE_INFER_VERSION = replace(KSERVE_INFER, path=f"{_OF_VERSION}/infer")
KSERVE_GENERATE = _kserve(
    "POST", f"{_V2}/generate", "Continue a text, as Triton does.", "TritonText", kserve.GENERATE
)
KSERVE_GENERATE_STREAM = _kserve(
    "POST",
    f"{_V2}/generate_stream",
    "Continue a text as server-sent events, as Triton does.",
    "TritonText",
    kserve.GENERATE,
    "TritonText",
)
KSERVE_INDEX = _kserve(
    "POST", "/v2/repository/index", "The models and their states.", "", kserve.REPOSITORY_INDEX
)
_V2_REPOSITORY = "/v2/repository/models/{model}"
KSERVE_LOAD = _kserve(
    "POST", f"{_V2_REPOSITORY}/load", LOAD.summary, PLAIN_TEXT, kserve.REPOSITORY_CHANGE,
    scope=ADMIN,
)  # fmt: skip
KSERVE_UNLOAD = _kserve(
    "POST", f"{_V2_REPOSITORY}/unload", UNLOAD.summary, PLAIN_TEXT, kserve.REPOSITORY_CHANGE,
    scope=ADMIN,
)  # fmt: skip
KSERVE = (
    KSERVE_SERVER,
    KSERVE_LIVE,
    KSERVE_READY,
    KSERVE_INFER_VERSION,
    KSERVE_INFER,
    KSERVE_GENERATE_STREAM,
    KSERVE_GENERATE,
    KSERVE_INDEX,
    KSERVE_LOAD,
    KSERVE_UNLOAD,
    KSERVE_MODEL_READY_VERSION,
    KSERVE_MODEL_READY,
    KSERVE_CONFIG_VERSION,
    KSERVE_CONFIG,
    KSERVE_STATS_ALL,
    KSERVE_STATS_VERSION,
    KSERVE_STATS,
    KSERVE_MODEL_VERSION,
    KSERVE_MODEL,
)
"""Longer paths first: {model} at the end of one matches all that follows."""
KSERVE_TEXT = (KSERVE_GENERATE, KSERVE_GENERATE_STREAM)
KSERVE_STATISTICS = (
    KSERVE_CONFIG,
    KSERVE_CONFIG_VERSION,
    KSERVE_STATS,
    KSERVE_STATS_VERSION,
    KSERVE_STATS_ALL,
)
ROUTES = (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    RESPONSE_CREATE,
    RESPONSE_TOKENS,
    RESPONSE_INPUT,
    RESPONSE_CANCEL,
    RESPONSE,
    RESPONSE_DELETE,
    EMBEDDINGS,
    SCORE_V1,
    SCORE_PLAIN,
    RERANK_V1,
    RERANK_V2,
    RERANK_PLAIN,
    CLASSES,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    FILE_CREATE,
    FILES,
    FILE_CONTENT,
    FILE,
    FILE_DELETE,
    BATCH_CREATE,
    BATCHES,
    BATCH_CANCEL,
    BATCH,
    *TGI,
    *KSERVE,
    *OLLAMA,
    *LLAMACPP,
    ANTHROPIC_MESSAGES,
    ANTHROPIC_COUNT,
    MODELS,
    MODEL,
    LOAD,
    UNLOAD,
    LORA_LOAD,
    LORA_UNLOAD,
    SLEEP,
    WAKE_UP,
    IS_SLEEPING,
    HEALTH,
    READY,
)
