"""The fields of POST /v1/responses, as OpenAI's SDKs and Codex send them.

In addition to OpenAI's own fields there are the sampling fields of chat.completions.
`text.verbosity` is left out on purpose: no model here supports it, and Codex sends it for some
model names, so it is ignored and named instead of refused.
"""

from __future__ import annotations

from functools import cache

from mlcc.api.openai_responses.item_fields import item_of
from mlcc.api.openai_responses.tools import CHOICE, MOST_TOOLS, TOOL
from mlcc.api.schema.chat_fields import COUNT, LIKELIEST, SAMPLING
from mlcc.api.schema.metadata_field import PAIRS
from mlcc.api.schema.modalities import ALL, Modalities
from mlcc.api.schema.schema import (
    NOT_EMPTY,
    Either,
    Field,
    Flag,
    Many,
    Object,
    Tagged,
    Text,
    honoured,
    metadata,
    not_built,
)
from mlcc.api.schema.structured_output import SCHEMA

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
"""The first two are supported; the others belong to tools that OpenAI runs."""


REASONING = Object(
    "ResponsesReasoning",
    (
        honoured(
            "effort",
            Text(("none", "minimal", "low", "medium", "high", "xhigh", "max")),
            "Reasoning effort, if the chat template supports it; none = no reasoning.",
        ),
        honoured(
            "summary",
            Text(("auto", "concise", "detailed")),
            "Send reasoning as its summary; it is not summarized.",
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
        honoured("strict", Flag(), "Refuse a schema that cannot be enforced in full."),
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
TEXT_CONFIG = Object("ResponsesTextConfig", (honoured("format", FORMAT, "Format of the answer."),))
STREAM_OPTIONS = Object("ResponsesStreamOptions", (not_built("include_obfuscation", False),))
OTHER_INPUT = (
    honoured("instructions", Text(), "The system prompt."),
    honoured(
        "previous_response_id",
        NOT_EMPTY,
        "The stored answer whose conversation goes before the input.",
    ),
    honoured("tools", Many(TOOL, 0, MOST_TOOLS), "Functions that the model may call."),
    honoured("tool_choice", CHOICE, "Which tool must be called, if any."),
    honoured("parallel_tool_calls", Flag(), "false: one call at most in an answer."),
    honoured("reasoning", REASONING, "Whether and how much the model reasons."),
    honoured("text", TEXT_CONFIG, "Format of the answer."),
    not_built("truncation", "disabled", advice="send fewer items, or start anew with a summary"),
    not_built("conversation", advice="send 'previous_response_id'"),
    not_built("context_management", []),
    not_built("prompt", advice="send 'instructions' and 'input'"),
)
"""Fields of the prompt but the items."""
OWN_NAMES = {"max_tokens"}
"""Sampling fields that have other names in this API."""


def _input(item: Tagged) -> tuple[Field, ...]:
    return (
        honoured("model", NOT_EMPTY, "Must be the model that is loaded, if it is given."),
        honoured("input", Either(Text(), Many(item)), "The user's text, or a list of items."),
        *OTHER_INPUT,
    )


OF_ANSWER = (
    honoured("max_output_tokens", COUNT, "Longest answer in tokens, reasoning included."),
    honoured("stream", Flag(), "Send the answer as it is made, as server-sent events."),
    honoured("stream_options", STREAM_OPTIONS, "Only with `stream`."),
    honoured(
        "store",
        Flag(),
        "Store the answer for `previous_response_id` and retrieval; true by default.",
    ),
    honoured("metadata", PAIRS, "Stored with the answer."),
    honoured("include", Many(Text(INCLUDABLE)), "Additional fields of the answer."),
    honoured(
        "top_logprobs",
        LIKELIEST,
        "Report this many of the likeliest tokens at each position, with log-probabilities.",
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
)


@cache
def table_of(counted: bool, reads: Modalities) -> Object:
    """The table of a request to a model, or of one to count its tokens (`counted`)."""
    item = item_of(reads)
    if counted:
        return Object("ResponsesCountRequest", _input(item))
    return Object("ResponsesRequest", (*_input(item), *OF_ANSWER))


RESPONSES, COUNT_INPUT = table_of(False, ALL), table_of(True, ALL)
