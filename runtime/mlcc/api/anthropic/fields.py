"""The fields of POST /v1/messages, as Anthropic's SDKs and Claude Code send them.

In addition to Anthropic's own fields there are the sampling fields of chat.completions.
"""

from __future__ import annotations

from typing import Any

from mlcc.api.schema.chat_fields import MAX_STOP, SAMPLING
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
    Object,
    Tagged,
    Text,
    honoured,
    metadata,
    not_built,
    refuse,
)
from mlcc.api.schema.structured_output import SCHEMA

COUNT = Integer(1, 2**31 - 1)
MOST_TOOLS = 512
NO_IMAGES = "this model sees no images: leave them out, or say in words what they show"
NO_ADDRESS = "none is fetched here: send the image itself, as base64"
AS_TEXT = "send the document's text: 'source': {'type': 'text', 'data': TEXT}"
CACHED = metadata("cache_control")
"""Accepted and dropped: the prefix cache works without it."""


def _mapping(value: Json, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise refuse(MAPPING, value, where)
    return value


MAPPING = Custom("an object", _mapping, (ANYTHING,))

TEXT_BLOCK = Object(
    "AnthropicTextBlock",
    (honoured("text", Text(), required=True), CACHED, metadata("citations")),
)
TEXT_SOURCE = Object(
    "AnthropicTextSource",
    (honoured("data", Text(), required=True), metadata("media_type")),
)
ABOUT_DOCUMENT = (
    honoured("title", Text()),
    honoured("context", Text(), "Context for the document."),
    CACHED,
    metadata("citations"),
)
IMAGE_SOURCE = Tagged(
    "a source of the type 'base64'",
    {
        "base64": Object(
            "AnthropicImageSource",
            (
                honoured("data", NOT_EMPTY, "The file's bytes as base64.", required=True),
                metadata("media_type"),
            ),
        )
    },
    refused=dict.fromkeys(("url", "file"), NO_ADDRESS),
)
IMAGE_BLOCK = Object(
    "AnthropicImage",
    (honoured("source", IMAGE_SOURCE, "The image.", required=True), CACHED),
)


def _texts(sees: bool, of_result: bool) -> dict[str, Object]:
    """The blocks that are text, with images inside documents for a model that sees. of_result: in
    a tool's result, where sources of other types are left out with a note."""
    inside = {"text": TEXT_BLOCK, **({"image": IMAGE_BLOCK} if sees else {})}
    blocks = Either(Text(), Many(Tagged("a text block", inside, open=True)))
    says = "Its text and, for a model that sees, images; other blocks are left out with a note."
    of_blocks = Object("AnthropicBlocksSource", (honoured("content", blocks, says, required=True),))
    source = Tagged(
        "a source of the type 'text'",
        {"text": TEXT_SOURCE, "content": of_blocks},
        refused={} if of_result else dict.fromkeys(("base64", "url", "file"), AS_TEXT),
        open=of_result,
    )
    document = Object(
        "AnthropicResultDocument" if of_result else "AnthropicDocument",
        (honoured("source", source, "Its text.", required=True), *ABOUT_DOCUMENT),
    )
    search_result = Object(
        "AnthropicSearchResult",
        (
            honoured("source", Text(), "Where it was found."),
            honoured("title", Text()),
            honoured("content", blocks, "Its text.", required=True),
            CACHED,
            metadata("citations"),
        ),
    )
    return {"text": TEXT_BLOCK, "document": document, "search_result": search_result}


TEXTS = ("text", "document", "search_result")
"""Types of blocks that are text."""
THINKING_BLOCK = Object(
    "AnthropicThinkingBlock",
    (
        honoured("thinking", Text(), "The model's reasoning.", required=True),
        honoured("signature", Text(), "Send it back unchanged: it may hold the text."),
        CACHED,
    ),
)
REDACTED = Object("AnthropicRedactedThinking", (metadata("data"), CACHED))
TOOL_USE = Object(
    "AnthropicToolUse",
    (
        honoured("id", NOT_EMPTY, "The id that the result refers to.", required=True),
        honoured("name", NOT_EMPTY, "The tool's name.", required=True),
        honoured("input", ANYTHING, "Its arguments, an object; other JSON is passed as text."),
        CACHED,
        metadata("caller"),
    ),
)


def _block(sees: bool) -> Tagged:
    """The blocks of a message, with images for a model that sees."""
    images = {"image": IMAGE_BLOCK} if sees else {}
    result = Tagged(
        "a text block", {**_texts(sees, of_result=True), **images}, open=True
    )  # what is neither, such as a file, is left out with a note
    tool_result = Object(
        "AnthropicToolResult",
        (
            honoured("tool_use_id", NOT_EMPTY, "The id of the call.", required=True),
            honoured("content", Either(Text(), Many(result)), "The tool's output."),
            honoured("is_error", Flag(), "Whether the call failed; the model sees this."),
            CACHED,
        ),
    )
    return Tagged(
        "a content block",
        {
            **_texts(sees, of_result=False),
            **images,
            "tool_use": TOOL_USE,
            "tool_result": tool_result,
            "thinking": THINKING_BLOCK,
            "redacted_thinking": REDACTED,
        },
        refused={} if sees else {"image": NO_IMAGES},
        open=True,
    )


BLOCK = _block(True)
"""Others in a message of the assistant's are of tools that Anthropic runs (server_tool_use,
web_search_tool_result): left out, and named. The model's words about what they found are text."""


def _message(block: Tagged) -> Object:
    return Object(
        "AnthropicMessage",
        (
            honoured(
                "role",
                Text(("user", "assistant", "system")),
                "Author; later system messages become a part of the user's turn.",
                required=True,
            ),
            honoured("content", Either(Text(), Many(block)), "The message.", required=True),
        ),
    )


TOOL = Object(
    "AnthropicTool",
    (
        honoured("name", NOT_EMPTY, "The tool's name.", required=True),
        honoured("description", Text(), "The tool's purpose, for the model."),
        honoured("input_schema", MAPPING, "The schema of its input; without, it takes none."),
        honoured("strict", Flag(), "Refuse a schema that cannot be enforced."),
        CACHED,
        metadata("eager_input_streaming"),
        metadata("input_examples"),
        metadata("defer_loading"),
        metadata("allowed_callers"),
    ),
)
ANY_TOOL = Tagged("a tool", {"custom": TOOL}, default="custom", open=True)
"""Other types of tools are run by Anthropic (web_search_20250305): left out, and named."""
PARALLEL = honoured("disable_parallel_tool_use", Flag(), "One call at most in an answer.")
TOOL_CHOICE = Tagged(
    "an object that says which tools are called",
    {
        "auto": Object("AnthropicAutoTools", (PARALLEL,)),
        "any": Object("AnthropicAnyTool", (PARALLEL,)),
        "tool": Object("AnthropicThisTool", (honoured("name", NOT_EMPTY, required=True), PARALLEL)),
        "none": Object("AnthropicNoTool", ()),
    },
)
SHOWN = honoured(
    "display",
    Text(("summarized", "omitted")),
    "Whether reasoning is sent as text; it is not summarized.",
)
THINKING = Tagged(
    "an object that says whether the model thinks",
    {
        "enabled": Object(
            "AnthropicThinking",
            (
                honoured("budget_tokens", COUNT, "Tokens of reasoning, at most.", required=True),
                SHOWN,
            ),
        ),
        "adaptive": Object("AnthropicAdaptiveThinking", (SHOWN,)),
        "disabled": Object("AnthropicNoThinking", ()),
    },
)
FORMAT = Object(
    "AnthropicFormat",
    (
        honoured("type", Text(("json_schema",)), required=True),
        honoured("schema", SCHEMA, "The schema of the answer.", required=True),
    ),
    closed=True,
)
OUTPUT_CONFIG = Object(
    "AnthropicOutputConfig",
    (
        honoured(
            "effort",
            Text(("low", "medium", "high", "xhigh", "max")),
            "Reasoning effort, if the chat template supports it.",
        ),
        honoured("format", FORMAT, "The answer is JSON."),
        metadata("task_budget"),
    ),
)
MODEL = honoured("model", NOT_EMPTY, "Must be the model that is loaded.", required=True)
OTHER_INPUT = (
    honoured(
        "system",
        Either(Text(), Many(Tagged("a text block", {"text": TEXT_BLOCK}))),
        "The system prompt.",
    ),
    honoured("tools", Many(ANY_TOOL, 0, MOST_TOOLS), "Functions that the model may call."),
    honoured("tool_choice", TOOL_CHOICE, "Which tool must be called, if any."),
    honoured("thinking", THINKING, "Whether the model reasons first; off by default."),
    honoured("output_config", OUTPUT_CONFIG, "Format and effort of the answer."),
    honoured("output_format", FORMAT, "The older name of `output_config.format`."),
    CACHED,
    metadata("metadata"),
    metadata("betas"),
    metadata("context_management"),
    metadata("diagnostics"),
    metadata("service_tier"),
    metadata("inference_geo"),
    metadata("speed"),
    metadata("user_profile_id"),
    not_built("container"),
    not_built("mcp_servers", []),
)
"""Fields of the prompt but the messages, and those that do not affect the answer."""
OWN_NAMES = {"max_tokens", "stop"}
"""Sampling fields for which Anthropic has its own names or rules."""
OF_ANSWER = (
    honoured("max_tokens", COUNT, "Longest answer in tokens.", required=True),
    honoured(
        "stop_sequences",
        Many(NOT_EMPTY, 0, MAX_STOP),
        "The answer ends before the first of these.",
    ),
    honoured("stream", Flag(), "Send the answer as it is made, as server-sent events."),
    *(row for row in SAMPLING if row.name not in OWN_NAMES),
)


def _input(block: Tagged) -> tuple[Field, ...]:
    messages = Many(_message(block), 1)
    return (
        MODEL,
        honoured("messages", messages, "The conversation so far.", required=True),
        *OTHER_INPUT,
    )


MESSAGES = Object("AnthropicRequest", (*_input(BLOCK), *OF_ANSWER))
COUNT_TOKENS = Object("AnthropicCountRequest", _input(BLOCK))
TEXT_BLOCKS = _block(False)
TEXT_MESSAGES = Object("AnthropicRequest", (*_input(TEXT_BLOCKS), *OF_ANSWER))
TEXT_COUNT_TOKENS = Object("AnthropicCountRequest", _input(TEXT_BLOCKS))
"""The same for a model that reads text only."""
