"""Answers of /v1/responses in OpenAI's shapes, as types. Nothing here is code."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponsesOutputText(TypedDict):
    """What the model said."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    """Always empty: nobody cites here."""
    logprobs: list[dict[str, Any]]
    """If the request includes `message.output_text.logprobs`."""


class ResponsesOutputMessage(TypedDict):
    """A message of the model's."""

    type: Literal["message"]
    id: str
    role: Literal["assistant"]
    status: ItemStatus
    content: list[ResponsesOutputText]


class _InNamespace(TypedDict, total=False):
    namespace: str
    """That of the tool, if it is in one."""


class ResponsesOutputCall(_InNamespace):
    """A function that the model calls."""

    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class ResponsesOutputCustomCall(_InNamespace):
    """A custom tool that the model calls."""

    type: Literal["custom_tool_call"]
    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus


class ResponsesReasoningText(TypedDict):
    """What the model thought."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class _Carried(TypedDict, total=False):
    encrypted_content: str
    """The text as an opaque word, if the request includes it: to be sent back. It is no secret."""


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
    """What the tokens of the prompt were."""

    cached_tokens: int
    """Those that were not computed again: an earlier request began alike."""
    cache_write_tokens: int
    """Always 0: nothing is kept that was not computed for this answer."""


class ResponsesReasoningTokens(TypedDict):
    """What the tokens of the answer were."""

    reasoning_tokens: int


class ResponsesUsage(TypedDict):
    """Tokens of a request."""

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
    """Why an answer is shorter than the model would have made it."""

    reason: Literal["max_output_tokens"]


class ResponsesAnswer(TypedDict):
    """An answer of /v1/responses. What the request said is repeated."""

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
    """A server-sent event of /v1/responses, named by its type. Beside these it has, by type:
    `response`; `item` with `output_index`; or what was added to, or is the whole of, a part."""

    type: str
    sequence_number: int


class ResponsesItemList(TypedDict):
    """The input of an answer that is kept."""

    object: Literal["list"]
    data: list[Any]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ResponsesDeleted(TypedDict):
    """An answer that is no longer kept."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ResponsesTokenCount(TypedDict):
    """The answer of /v1/responses/input_tokens."""

    object: Literal["response.input_tokens"]
    input_tokens: int
