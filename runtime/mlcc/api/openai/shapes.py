"""Answers in OpenAI's shapes, as types. `responses.py` makes them; nothing here is code.

`tools/api_types` prints these classes as TypeScript and Kotlin, their comments included.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
"""stop = the model ended its answer, or a stop string came; length = no more tokens were allowed,
or fit; tool_calls = it ended, and calls tools."""


class PromptTokensDetails(TypedDict):
    """What the tokens of the prompts were."""

    cached_tokens: int
    """Those that were not computed again: an earlier request began alike."""


class CompletionTokensDetails(TypedDict):
    """What became of tokens that were guessed ahead of the model (`--speculate`, `prediction`)."""

    accepted_prediction_tokens: int
    """Those that are in the answers."""
    rejected_prediction_tokens: int
    """Those that were computed in vain; they are not in `completion_tokens`."""


class _Guessed(TypedDict, total=False):
    completion_tokens_details: CompletionTokensDetails
    """Where something was guessed."""


class Usage(_Guessed):
    """Tokens of all answers of a request together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class FunctionCall(TypedDict):
    """What is called."""

    name: str
    arguments: str
    """JSON's text, of an object."""


class ToolCall(TypedDict):
    """A tool that the model calls."""

    id: str
    """What the message that answers it names."""
    type: Literal["function"]
    function: FunctionCall


class _Apart(TypedDict, total=False):
    reasoning_content: str
    """What the model thought before it answered, where it thinks."""
    tool_calls: list[ToolCall]
    """Tools that it calls, if it does."""


class AssistantMessage(_Apart):
    """The answer of a chat."""

    role: Literal["assistant"]
    content: str | None
    """null beside `tool_calls`, if nothing else is said."""
    refusal: None


class ChatToken(TypedDict):
    """A token and its log-probability: with logits after penalties and biases, before temperature
    and filters."""

    token: str
    """Its text, with U+FFFD where it is a part of a character."""
    logprob: float
    """Natural; -9999 is the least."""
    bytes: list[int] | None
    """Of its text in UTF-8; of a part of a character those, or null where they are not known."""


class ChatTokenLogprob(ChatToken):
    """A token of an answer."""

    top_logprobs: list[ChatToken]
    """The likeliest in its place, the likeliest first; those that steer the model are left out."""


class ChatLogprobs(TypedDict):
    """Of the tokens that the text beside it is made of; what stop strings cut off is left out."""

    content: list[ChatTokenLogprob]
    refusal: None


class ChatChoice(TypedDict):
    """One answer of a chat completion."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    """With `logprobs` in the request."""
    finish_reason: FinishReason


class _Fingerprint(TypedDict, total=False):
    system_fingerprint: str
    """Of the artifact that answers: the same as long as its files are."""


class ChatCompletion(_Fingerprint):
    """A whole answer of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    """Seconds since 1970."""
    model: str
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(TypedDict, total=False):
    """What a chunk adds to what is called."""

    name: str
    arguments: str


class _NamesCall(TypedDict, total=False):
    id: str
    type: Literal["function"]


class ToolCallDelta(_NamesCall):
    """What a chunk adds to a call: first its id and name, then its arguments."""

    index: int
    """Of the call in the answer."""
    function: FunctionDelta


class ChatDelta(TypedDict, total=False):
    """What a chunk adds to the answer; the first one names the role, the last one is empty."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: list[ToolCallDelta]


class ChatChunkChoice(TypedDict):
    """A piece of one answer of a chat completion."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    """With `logprobs` in the request, beside text."""
    finish_reason: FinishReason | None
    """Why the answer ended, in its last chunk."""


class _UsageAtEnd(TypedDict, total=False):
    system_fingerprint: str
    """Of the artifact that answers: the same as long as its files are."""
    usage: Usage | None
    """With `stream_options.include_usage`: in a last chunk without choices, null before."""


class ChatCompletionChunk(_UsageAtEnd):
    """A server-sent event of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]


class CompletionLogprobs(TypedDict):
    """Of the tokens that the text beside it is made of, an entry each, with `echo` those of the
    prompt before them; what stop strings cut off is left out."""

    tokens: list[str]
    """Their texts; a part of a character is written `bytes:\\xe2`."""
    token_logprobs: list[float | None]
    """Natural; with logits after penalties and biases, before temperature and filters. -9999 is the
    least; null for a prompt's first token, which follows nothing."""
    top_logprobs: list[dict[str, float] | None]
    """The likeliest in each place by their texts, and the token itself."""
    text_offset: list[int]
    """Where each begins: characters (Unicode's code points) of the text before it."""


class CompletionChoice(TypedDict):
    """The answer to one prompt; `index` is the prompt's number."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    """With `logprobs` in the request."""
    finish_reason: FinishReason


class Completion(_Fingerprint):
    """A whole answer of /v1/completions, one choice per prompt."""

    id: str
    object: Literal["text_completion"]
    created: int
    """Seconds since 1970."""
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunkChoice(TypedDict):
    """A piece of the answer to one prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    """With `logprobs` in the request."""
    finish_reason: FinishReason | None
    """Why the answer ended, in its last chunk."""


class CompletionChunk(_UsageAtEnd):
    """A server-sent event of /v1/completions; those of several prompts are mixed."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]


ModelState: TypeAlias = Literal["loaded", "loading", "unloaded"]
"""loaded = it answers at once; loading = who asks for it waits; unloaded = it is loaded for whoever
asks first."""


class Model(TypedDict):
    """One entry of /v1/models."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["mlcc"]
    state: ModelState
    """What is not loaded is when it is asked for."""
    context_length: int
    """Tokens of a prompt and its answer together."""
    max_model_len: int
    """The same, as vLLM calls it."""
    aliases: list[str]
    """Other names that it answers to."""
    memory_bytes: int | None
    """Planned for it while it is loaded, where somebody planned."""
    requests: int
    """Those that wait or are being answered."""
    parent: str | None
    """Of an adapter (LoRA): the model that it adapts."""


class ModelList(TypedDict):
    """The answer of /v1/models."""

    object: Literal["list"]
    data: list[Model]


class EncoderUsage(TypedDict):
    """Tokens of all texts of a request together."""

    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """What one text became."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    """Numbers, or base64 of little-endian float32, as `encoding_format` said."""


class EmbeddingList(TypedDict):
    """The answer of /v1/embeddings, in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EncoderUsage


class Score(TypedDict):
    """How well the texts of one pair go together."""

    index: int
    object: Literal["score"]
    score: float


class ScoreList(TypedDict):
    """The answer of /v1/score."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: EncoderUsage


class RankedText(TypedDict):
    """A document, as it was sent."""

    text: str


class _WithDocument(TypedDict, total=False):
    document: RankedText
    """Unless `return_documents` was false."""


class Ranked(_WithDocument):
    """One document's place."""

    index: int
    """Among the documents of the request."""
    relevance_score: float


class Ranking(TypedDict):
    """The answer of /v1/rerank: the best document first."""

    id: str
    model: str
    usage: EncoderUsage
    results: list[Ranked]


class ErrorObject(TypedDict):
    """What went wrong."""

    message: str
    """What happened, why, and what to do next."""
    type: str
    """invalid_request_error, or server_error."""
    param: str | None
    """The field of the request that is at fault."""
    code: str | None
    """Stable, for programs: context_length_exceeded, queue_full, device_lost, ..."""


class ErrorBody(TypedDict):
    """The body of every answer that is no success, and the last event of a stream that broke."""

    error: ErrorObject
