"""Ollama's requests as tables of fields. What they become in OpenAI's words is `request.py`.

Fields of `options` that say how a model is loaded are accepted and change nothing: the model is
loaded already, with the context that it was given, and what does not fit into that is refused in
plain words, never cut.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.api.openai.embeddings import MOST_TEXTS
from mlcc.api.schema.chat_fields import SAMPLING
from mlcc.api.schema.schema import (
    ANYTHING,
    Custom,
    Either,
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

NOT_EMPTY = Text(allow_empty=False)
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

OPTIONS = Object(
    "OllamaOptions",
    (
        *(row for row in SAMPLING if row.name != "max_tokens"),
        honoured(
            "num_predict",
            Integer(-2, 2**31 - 1),
            "Longest answer in tokens; 0 and below = as long as the context allows.",
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
        honoured("name", NOT_EMPTY, "The function.", required=True),
        honoured("arguments", ANY_OBJECT, "By name."),
        metadata("index"),
        metadata("description"),
    ),
)
TOOL_CALL = Object(
    "OllamaToolCall",
    (
        honoured("function", FUNCTION_CALL, "What is called, and with what.", required=True),
        honoured("id", NOT_EMPTY, "Names the call in the message of its result."),
        metadata("type"),
    ),
)
MESSAGE = Object(
    "OllamaMessage",
    (
        honoured(
            "role",
            Text(("system", "user", "assistant", "tool")),
            "Who says it.",
            required=True,
        ),
        honoured("content", Text(), "What is said."),
        honoured("thinking", Text(), "What was thought before it was said."),
        honoured("tool_calls", Many(TOOL_CALL), "Of an assistant."),
        honoured("tool_name", NOT_EMPTY, "The function whose result a tool's message is."),
        honoured("tool_call_id", NOT_EMPTY, "The call whose result a tool's message is."),
        not_built("images", [], advice="send text only"),
    ),
)

COMMON = (
    honoured("model", Text(), "The loaded one, with or without ':latest'."),
    honoured("stream", Flag(), "Lines of JSON as the answer is made; true unless false is said."),
    honoured("format", FORMAT, "The answer is JSON, or fits a schema."),
    honoured("options", OPTIONS, "How the answer is sampled."),
    honoured("think", THINK, "Whether, or how long, the model thinks first."),
    honoured("logprobs", Flag(), "Tell the log-probability of each token of the answer."),
    honoured("top_logprobs", Integer(0, 20), "Tell those of the likeliest in each place, too."),
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
        honoured("messages", Many(MESSAGE), "The conversation; none = is the model loaded?"),
        honoured("tools", Many(ANY_OBJECT), "Functions that may be called, in OpenAI's shape."),
    ),
)

GENERATE = Object(
    "OllamaGenerateRequest",
    (
        *COMMON,
        honoured("prompt", Text(), "What the user says; with `raw`, what is to be continued."),
        honoured("suffix", Text(), "What follows the gap that the answer fills."),
        honoured("system", Text(), "What the system says before it."),
        honoured("raw", Flag(), "Continue the prompt as it is, without the chat template."),
        not_built("images", [], advice="send text only"),
        not_built("template", ""),
        not_built("context", [], advice="send the conversation to /api/chat"),
        not_built("width", 0),
        not_built("height", 0),
        not_built("steps", 0),
    ),
)

NAMED = Object(
    "OllamaModelRequest",
    (
        honoured("model", Text(), "The model's name."),
        honoured("name", Text(), "The older word for it."),
        honoured("stream", Flag(), "Lines of JSON as it goes on; true unless false is said."),
        metadata("verbose"),
        metadata("insecure"),
    ),
)
EMBED = Object(
    "OllamaEmbedRequest",
    (
        honoured("model", Text(), "The model's name."),
        honoured("input", Either(Text(), Many(Text(), 0, MOST_TEXTS)), "Texts."),
        honoured("prompt", Text(), "The older word for one."),
        honoured("truncate", Flag(), "Cut texts that are too long; true unless said."),
        honoured("dimensions", Integer(0, 2**31 - 1), "Keep so many numbers of each row."),
        metadata("options"),
        metadata("keep_alive"),
    ),
)
