"""The fields of POST /v1/responses, as OpenAI's SDKs and Codex send them.

Beside OpenAI's own there are the sampling fields of chat.completions, by their names there.
`text.verbosity` is left out on purpose: no model here knows it, and Codex sends it for some names
of models, so it is ignored and named instead of refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.api.openai_responses.item_fields import ITEM
from mlcc.api.openai_responses.tools import CHOICE, MOST_TOOLS, TOOL
from mlcc.api.schema.chat_fields import COUNT, LIKELIEST, SAMPLING
from mlcc.api.schema.schema import (
    ANYTHING,
    Custom,
    Either,
    Flag,
    Json,
    Many,
    Object,
    Tagged,
    Text,
    honoured,
    metadata,
    not_built,
    refuse,
)
from mlcc.api.schema.structured_output import SCHEMA

NOT_EMPTY = Text(allow_empty=False)
MOST_PAIRS, MOST_KEY, MOST_VALUE = 16, 64, 512
"""Of metadata, as OpenAI has it."""
INCLUDABLE = (
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
"""The first two are there; the others are of tools that nobody runs here."""


def _pairs(value: Json, where: str) -> dict[str, str]:
    good = isinstance(value, Mapping) and len(value) <= MOST_PAIRS
    if not good or not all(len(key) <= MOST_KEY for key in value):
        raise refuse(PAIRS, value, where)
    for key, text in value.items():
        Text().check(text, f"{where}.{key}")
        if len(text) > MOST_VALUE:
            raise refuse(PAIRS, value, where)
    return dict(value)


PAIRS = Custom(
    f"an object of at most {MOST_PAIRS} texts of at most {MOST_VALUE} characters",
    _pairs,
    (ANYTHING,),
)
REASONING = Object(
    "ResponsesReasoning",
    (
        honoured(
            "effort",
            Text(("none", "minimal", "low", "medium", "high", "xhigh", "max")),
            "How much the model thinks, where its template knows that; none = not at all.",
        ),
        honoured(
            "summary",
            Text(("auto", "concise", "detailed")),
            "Tell the reasoning as its summary; it is not summarized.",
        ),
        metadata("generate_summary"),
        metadata("context"),
    ),
)
JSON_SCHEMA = Object(
    "ResponsesJsonSchema",
    (
        honoured("schema", SCHEMA, "The schema of the answer.", required=True),
        metadata("name"),
        metadata("description"),
        metadata("strict"),
    ),
    closed=True,
)
FORMAT = Tagged(
    "a format",
    {
        "text": Object("ResponsesPlainText", ()),
        "json_object": Object("ResponsesJsonObject", ()),
        "json_schema": JSON_SCHEMA,
    },
)
TEXT_CONFIG = Object("ResponsesTextConfig", (honoured("format", FORMAT, "What the answer is."),))
STREAM_OPTIONS = Object("ResponsesStreamOptions", (not_built("include_obfuscation", False),))
INPUT = (
    honoured("model", NOT_EMPTY, "Must be the model that is loaded, if it is given."),
    honoured("input", Either(Text(), Many(ITEM)), "What is said: a text of the user's, or items."),
    honoured("instructions", Text(), "What the system says, before all else."),
    honoured(
        "previous_response_id",
        NOT_EMPTY,
        "The conversation of an answer that is kept goes before the input.",
    ),
    honoured("tools", Many(TOOL, 0, MOST_TOOLS), "Functions that the model may call."),
    honoured("tool_choice", CHOICE, "Whether a tool is called."),
    honoured("parallel_tool_calls", Flag(), "false: one call at most in an answer."),
    honoured("reasoning", REASONING, "Whether and how much the model thinks."),
    honoured("text", TEXT_CONFIG, "What the answer is like."),
    not_built("truncation", "disabled", advice="send fewer items, or start anew with a summary"),
    not_built("conversation", advice="send 'previous_response_id'"),
    not_built("context_management", []),
    not_built("prompt", advice="send 'instructions' and 'input'"),
)
"""What a prompt is made of."""
OWN_NAMES = {"max_tokens"}
"""Fields of sampling that this API has other names for."""
RESPONSES = Object(
    "ResponsesRequest",
    (
        *INPUT,
        honoured("max_output_tokens", COUNT, "Longest answer in tokens, reasoning included."),
        honoured("stream", Flag(), "Send the answer as it is made, as server-sent events."),
        honoured("stream_options", STREAM_OPTIONS, "Only with `stream`."),
        honoured(
            "store",
            Flag(),
            "Keep the answer, for `previous_response_id` and to be fetched; true unless given.",
        ),
        honoured("metadata", PAIRS, "Kept with the answer."),
        honoured("include", Many(Text(INCLUDABLE)), "What the answer also has."),
        honoured(
            "top_logprobs",
            LIKELIEST,
            "Tell this many of the likeliest tokens in each place, and log-probabilities.",
        ),
        *(row for row in SAMPLING if row.name not in OWN_NAMES),
        not_built("background", False, advice="stream the answer, or wait for it"),
        not_built("moderation"),
        metadata("max_tool_calls"),
        metadata("user"),
        metadata("safety_identifier"),
        metadata("service_tier"),
        metadata("prompt_cache_key"),
        metadata("prompt_cache_options"),
        metadata("prompt_cache_retention"),
        metadata("client_metadata"),
    ),
)
COUNT_INPUT = Object("ResponsesCountRequest", INPUT)
