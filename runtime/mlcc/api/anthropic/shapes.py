"""Response types of Anthropic's API. `answer.py` fills them; there is no code here."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class AnthropicOutputDetails(TypedDict):
    """Breakdown of the output tokens."""

    thinking_tokens: int
    """Tokens of the reasoning, shown or not."""


class _DetailedUsage(TypedDict, total=False):
    output_tokens_details: AnthropicOutputDetails
    """Present if there was reasoning."""


class AnthropicUsage(_DetailedUsage):
    """Token counts. At the start of a stream all tokens of the prompt are `input_tokens`."""

    input_tokens: int
    """Tokens of the prompt that were computed."""
    cache_read_input_tokens: int
    """Tokens of the prompt that the prefix cache had."""
    cache_creation_input_tokens: int
    """Always 0: the prefix cache needs no request to keep a prompt, and costs nothing."""
    output_tokens: int


class AnthropicText(TypedDict):
    """Text of the answer."""

    type: Literal["text"]
    text: str
    citations: None


class AnthropicThinkingText(TypedDict):
    """Reasoning, if the request asked for it."""

    type: Literal["thinking"]
    thinking: str
    signature: str
    """To be sent back as it is; with `display` omitted, it holds the text."""


class AnthropicToolCall(TypedDict):
    """A tool call by the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


AnthropicContent: TypeAlias = AnthropicText | AnthropicThinkingText | AnthropicToolCall


class AnthropicAnswer(TypedDict):
    """A whole answer of /v1/messages."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnthropicContent]
    stop_reason: StopReason | None
    stop_sequence: str | None
    """The stop sequence that ended the answer."""
    usage: AnthropicUsage


class AnthropicEvent(TypedDict):
    """A server-sent event of /v1/messages, named by its type. Beside `type` it has, by type:
    `message`; `index` with `content_block` or `delta`; `delta` with `usage`; or `error`."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]


class AnthropicTokenCount(TypedDict):
    """The answer of /v1/messages/count_tokens."""

    input_tokens: int


class AnthropicErrorObject(TypedDict):
    """Type and message of an error."""

    type: str
    """invalid_request_error, not_found_error, overloaded_error, api_error, ..."""
    message: str
    """What happened, why, and what to do next."""


class AnthropicError(TypedDict):
    """The body of an error response, and the last event of a stream that failed."""

    type: Literal["error"]
    error: AnthropicErrorObject
