"""Ollama's requests as tables of fields. `request.py` translates them to OpenAI's.

Fields of `options` that configure loading are accepted without effect: the model is loaded already,
with its context. A prompt that does not fit is refused, never cut.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.api.openai.embeddings import MOST_TEXTS
from mlcc.api.schema.chat_fields import SAMPLING
from mlcc.api.schema.schema import (
    ANYTHING,
    NOT_EMPTY,
    Custom,
    Either,
    Field,
    Flag,
    Integer,
    Json,
    Many,
    Number,
    Object,
    Text,
    honoured,
    metadata,
    not_built,
    refuse,
)

EFFORTS = ("low", "medium", "high", "max")


def _format(value: Json, where: str) -> Json:
    if isinstance(value, Mapping) or value in ("", "json"):
        return value
    raise refuse(FORMAT, value, where)


def _think(value: Json, where: str) -> Json:
    if isinstance(value, bool) or value in EFFORTS:
        return value
    raise refuse(THINK, value, where)


def _any_object(value: Json, where: str) -> Json:
    if isinstance(value, Mapping):
        return value
    raise refuse(ANY_OBJECT, value, where)


FORMAT = Custom("'json' or a JSON Schema", _format, (Text(("json", "")), ANYTHING))
THINK = Custom("true, false or one of " + ", ".join(EFFORTS), _think, (Flag(), Text(EFFORTS)))
ANY_OBJECT = Custom("an object", _any_object, (ANYTHING,))
ARGUMENTS = Custom("an object", lambda value, where: value, (ANYTHING,))

OPTIONS = Object(
    "OllamaOptions",
    (
        *(row for row in SAMPLING if row.name != "max_tokens"),
        honoured(
            "num_predict",
            Integer(-2, 2**31 - 1),
            "Longest answer in tokens; 0 and below = no limit but the context.",
        ),
        *(
            metadata(name)
            for name in (
                "num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa",
                "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mmap", "use_mlock",
                "embedding_only",
            )
        ),
        not_built("tfs_z", 1),
        not_built("penalize_newline", True),
    ),
)  # fmt: skip

FUNCTION_CALL = Object(
    "OllamaFunctionCall",
    (
        honoured("name", NOT_EMPTY, "The function's name.", required=True),
        honoured("arguments", ARGUMENTS, "The arguments, by name; other JSON is passed as text."),
        metadata("index"),
        metadata("description"),
    ),
)
TOOL_CALL = Object(
    "OllamaToolCall",
    (
        honoured("function", FUNCTION_CALL, "The function and its arguments.", required=True),
        honoured("id", Text(), "The id that the result's message names."),
        metadata("type"),
    ),
)
MESSAGE = Object(
    "OllamaMessage",
    (
        honoured(
            "role",
            Text(("system", "developer", "user", "assistant", "tool")),
            "Author of the message.",
            required=True,
        ),
        honoured("content", Text(), "The message's text."),
        honoured("thinking", Text(), "Reasoning that came before the text."),
        honoured("tool_calls", Many(TOOL_CALL), "An assistant's tool calls."),
        honoured("tool_name", Text(), "The function that a tool's message answers."),
        honoured("tool_call_id", Text(), "The call that a tool's message answers."),
        honoured(
            "images",
            Many(ANYTHING),
            "Images as base64, before the text, for a model that sees. One that reads text only "
            "leaves them out of a tool's message, and refuses them in others.",
        ),
    ),
)

COMMON = (
    honoured("model", Text(), "The loaded model's name, with or without ':latest'."),
    honoured("stream", Flag(), "Stream lines of JSON; true by default."),
    honoured("format", FORMAT, "The answer is JSON, or fits a schema."),
    honoured("options", OPTIONS, "How the answer is sampled."),
    honoured("think", THINK, "Whether the model reasons first, or how much."),
    honoured("logprobs", Flag(), "Report the log-probability of each token of the answer."),
    honoured(
        "top_logprobs", Integer(0, 20), "Report this many of the likeliest tokens at each position."
    ),
    honoured(
        "keep_alive",
        Either(Custom("a time", lambda value, where: value, (Text(), Number())), Many(ANYTHING)),
        "Means nothing with a prompt: the model stays loaded. 0 without one is refused.",
    ),
)

CHAT = Object(
    "OllamaChatRequest",
    (
        *COMMON,
        honoured("messages", Many(MESSAGE), "The conversation; empty = only load the model."),
        honoured(
            "tools", Many(ANY_OBJECT), "Functions that the model may call, in OpenAI's shape."
        ),
    ),
)


def _generate(images: Field) -> Object:
    return Object("OllamaGenerateRequest", (*_GENERATE, images, *_REST))


_GENERATE = (
    *COMMON,
    honoured("prompt", Text(), "The user's message; with `raw`, the text to continue."),
    honoured("suffix", Text(), "Text after the gap that the answer fills."),
    honoured("system", Text(), "The system prompt."),
    honoured("raw", Flag(), "Continue the prompt without the chat template."),
)
_REST = (
    not_built("template", ""),
    not_built("context", [], advice="send the conversation to /api/chat"),
    not_built("width", 0),
    not_built("height", 0),
    not_built("steps", 0),
)
GENERATE = _generate(honoured("images", Many(NOT_EMPTY), "Images as base64, before the text."))
TEXT_GENERATE = _generate(not_built("images", [], advice="send text only"))
"""For a model that sees, and for one that reads text only."""

NAMED = Object(
    "OllamaModelRequest",
    (
        honoured("model", Text(), "The model's name."),
        honoured("name", Text(), "The older name of `model`."),
        honoured("stream", Flag(), "Stream lines of JSON; true by default."),
        metadata("verbose"),
        metadata("insecure"),
    ),
)
EMBED = Object(
    "OllamaEmbedRequest",
    (
        honoured("model", Text(), "The model's name."),
        honoured("input", Either(Text(), Many(Text(), 0, MOST_TEXTS)), "Texts."),
        honoured("prompt", Text(), "The older name of `input`, for one text."),
        honoured("truncate", Flag(), "Cut texts that are too long; true by default."),
        honoured("dimensions", Integer(0, 2**31 - 1), "Keep this many numbers of each embedding."),
        metadata("options"),
        metadata("keep_alive"),
    ),
)
