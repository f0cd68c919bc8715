"""Response types of /v1/responses. There is no code here."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
"""State of an item of an answer."""
Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
"""State of an answer."""


class ResponsesOutputText(TypedDict):
    """Text of the answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    """Always empty: there are no citations."""
    logprobs: list[dict[str, Any]]
    """If `include` has `message.output_text.logprobs`."""


class ResponsesOutputMessage(TypedDict):
    """A message of the model."""

    type: Literal["message"]
    id: str
    role: Literal["assistant"]
    status: ItemStatus
    content: list[ResponsesOutputText]


class _InNamespace(TypedDict, total=False):
    namespace: str
    """The tool's namespace, if it has one."""


class ResponsesOutputCall(_InNamespace):
    """A function call by the model."""

    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class ResponsesOutputCustomCall(_InNamespace):
    """A call of a custom tool by the model."""

    type: Literal["custom_tool_call"]
    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus


class ResponsesReasoningText(TypedDict):
    """Reasoning of the model."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class _Carried(TypedDict, total=False):
    encrypted_content: str
    """The text as opaque base64, if `include` has it, to be sent back. It is not secret."""


class ResponsesOutputReasoning(_Carried):
    """The model's reasoning: in `summary` if the request asks for one, else in `content`."""

    type: Literal["reasoning"]
    id: str
    summary: list[ResponsesReasoningText]
    content: list[ResponsesReasoningText]
    status: ItemStatus


OutputItem: TypeAlias = (
    ResponsesOutputMessage
    | ResponsesOutputCall
    | ResponsesOutputCustomCall
    | ResponsesOutputReasoning
)


class ResponsesCachedTokens(TypedDict):
    """Breakdown of the prompt's tokens."""

    cached_tokens: int
    """Tokens that the prefix cache had."""
    cache_write_tokens: int
    """Always 0: the prefix cache needs no request to keep a prompt."""


class ResponsesReasoningTokens(TypedDict):
    """Breakdown of the answer's tokens."""

    reasoning_tokens: int


class ResponsesUsage(TypedDict):
    """Token counts of a request."""

    input_tokens: int
    input_tokens_details: ResponsesCachedTokens
    output_tokens: int
    output_tokens_details: ResponsesReasoningTokens
    total_tokens: int


class ResponsesErrorObject(TypedDict):
    """Why an answer was not completed."""

    code: str
    message: str


class ResponsesIncomplete(TypedDict):
    """Why an answer was cut short."""

    reason: Literal["max_output_tokens"]


class ResponsesAnswer(TypedDict):
    """An answer of /v1/responses. It repeats the fields of its request."""

    id: str
    object: Literal["response"]
    created_at: int
    """Seconds since 1970."""
    completed_at: int | None
    status: Status
    error: ResponsesErrorObject | None
    incomplete_details: ResponsesIncomplete | None
    model: str
    output: list[OutputItem]
    usage: ResponsesUsage | None
    previous_response_id: str | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    temperature: float
    top_p: float
    top_logprobs: int
    presence_penalty: float
    frequency_penalty: float
    parallel_tool_calls: bool
    tool_choice: Any
    tools: list[Any]
    reasoning: dict[str, Any]
    text: dict[str, Any]
    truncation: Literal["disabled"]
    store: bool
    background: Literal[False]
    service_tier: Literal["default"]
    metadata: dict[str, str]
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None


class ResponsesEvent(TypedDict):
    """A server-sent event of /v1/responses, named by its type. By type it also has `response`;
    `item` with `output_index`; or a part that was added or completed."""

    type: str
    sequence_number: int


class ResponsesItemList(TypedDict):
    """The input items of a stored answer."""

    object: Literal["list"]
    data: list[Any]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ResponsesDeleted(TypedDict):
    """A deleted answer."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ResponsesTokenCount(TypedDict):
    """The answer of /v1/responses/input_tokens."""

    object: Literal["response.input_tokens"]
    input_tokens: int
