"""Response types of OpenAI's API. `responses.py` fills them; there is no code here.

`tools/api_types` prints these classes as Python, TypeScript and Kotlin, their comments included.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
"""stop = the model ended its answer, or a stop string matched; length = the token limit or the
context was reached; tool_calls = it ended with tool calls."""


class _MediaTokens(TypedDict, total=False):
    image_tokens: int
    """Tokens that stand for images, which `prompt_tokens` counts; present if there are any."""
    audio_tokens: int
    """The same of sound."""


class PromptTokensDetails(_MediaTokens):
    """Breakdown of the prompts' tokens."""

    cached_tokens: int
    """Tokens that the prefix cache had."""


class CompletionTokensDetails(TypedDict, total=False):
    """Tokens of the reasoning, and draft tokens (`--speculate`, `prediction`); what there was."""

    reasoning_tokens: int
    """Tokens between the marks of the reasoning."""
    accepted_prediction_tokens: int
    """Draft tokens that became a part of the answers."""
    rejected_prediction_tokens: int
    """Rejected draft tokens; they are not in `completion_tokens`."""


class _DetailedUsage(TypedDict, total=False):
    completion_tokens_details: CompletionTokensDetails
    """Present if there was reasoning, or tokens were drafted."""


class Usage(_DetailedUsage):
    """Token counts of all answers of a request together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class FunctionCall(TypedDict):
    """Name and arguments of a call."""

    name: str
    arguments: str
    """JSON text of an object."""


class ToolCall(TypedDict):
    """A tool call by the model."""

    id: str
    """The id that the tool's message refers to."""
    type: Literal["function"]
    function: FunctionCall


class _Apart(TypedDict, total=False):
    reasoning_content: str
    """The model's reasoning, if it was separated from the answer."""
    tool_calls: list[ToolCall]
    """Tool calls, if there are any."""


class AssistantMessage(_Apart):
    """The answer of a chat."""

    role: Literal["assistant"]
    content: str | None
    """null beside `tool_calls` if there is no text."""
    refusal: None


class ChatToken(TypedDict):
    """A token and its log-probability, from the logits after penalties and biases, before
    temperature and filters."""

    token: str
    """Its text, with U+FFFD for a part of a character."""
    logprob: float
    """Natural logarithm; -9999 is the minimum."""
    bytes: list[int] | None
    """UTF-8 bytes of its text, or of its part of a character; null if they are not known."""


class ChatTokenLogprob(ChatToken):
    """A token of an answer."""

    top_logprobs: list[ChatToken]
    """The likeliest tokens at its position, likeliest first, without control tokens."""


class ChatLogprobs(TypedDict):
    """Log-probabilities of the tokens of the text beside it, without what stop strings cut off."""

    content: list[ChatTokenLogprob]
    refusal: None


class ChatChoice(TypedDict):
    """One answer of a chat completion."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    """If the request has `logprobs`."""
    finish_reason: FinishReason


class _Fingerprint(TypedDict, total=False):
    system_fingerprint: str
    """Identifies the artifact: it changes only if its files change."""


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
    """Parts of a name and of arguments that a chunk adds."""

    name: str
    arguments: str


class _NamesCall(TypedDict, total=False):
    id: str
    type: Literal["function"]


class ToolCallDelta(_NamesCall):
    """What a chunk adds to a call: first its id and name, then its arguments."""

    index: int
    """Number of the call in the answer."""
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
    """If the request has `logprobs`, beside text."""
    finish_reason: FinishReason | None
    """Why the answer ended, in its last chunk."""


class _UsageAtEnd(TypedDict, total=False):
    system_fingerprint: str
    """Identifies the artifact: it changes only if its files change."""
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
    """Log-probabilities of the tokens of the text beside it, with `echo` those of the prompt before
    them; what stop strings cut off is left out."""

    tokens: list[str]
    """Texts of the tokens; a part of a character is written `bytes:\\xe2`."""
    token_logprobs: list[float | None]
    """Natural logarithms, from the logits after penalties and biases, before temperature and
    filters. -9999 is the minimum; null for a prompt's first token."""
    top_logprobs: list[dict[str, float] | None]
    """The likeliest tokens at each position by their texts, and the token itself."""
    text_offset: list[int]
    """Where each token begins: number of code points of text before it."""


class CompletionChoice(TypedDict):
    """The answer to one prompt; `index` is the prompt's number."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    """If the request has `logprobs`."""
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
    """If the request has `logprobs`."""
    finish_reason: FinishReason | None
    """Why the answer ended, in its last chunk."""


class CompletionChunk(_UsageAtEnd):
    """A server-sent event of /v1/completions; those of several prompts are interleaved."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]


ModelState: TypeAlias = Literal["loaded", "loading", "unloaded", "sleeping"]
"""loaded = ready; loading = requests wait for it; unloaded = the next request loads it; sleeping =
out of memory until /wake_up."""


class ImageSize(TypedDict, total=False):
    """Bounds in pixels: a model reads nothing more of an image that is larger than any of them."""

    longest_edge: int
    shortest_edge: int
    max_pixels: int
    """Width times height."""


class _Modalities(TypedDict, total=False):
    input_modalities: list[str]
    """Of a model that sees or hears: text, and image or audio."""
    image_size: ImageSize
    """Of a model that sees: clients may scale larger images down to it."""


class ModelPermission(TypedDict):
    """Permissions that clients of vLLM read, as OpenAI's API listed them: equal for all models."""

    id: str
    object: Literal["model_permission"]
    created: int
    allow_create_engine: bool
    allow_sampling: bool
    allow_logprobs: bool
    allow_search_indices: bool
    allow_view: bool
    allow_fine_tuning: bool
    organization: str
    group: str | None
    is_blocking: bool


class Model(_Modalities):
    """One entry of /v1/models."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["mlcc"]
    state: ModelState
    """A model that is not loaded is loaded on demand."""
    context_length: int
    """Longest prompt and answer together, in tokens."""
    max_model_len: int
    """The same number under vLLM's name."""
    aliases: list[str]
    """Other names of the model."""
    memory_bytes: int | None
    """Planned memory while it is loaded; null if there is no plan."""
    requests: int
    """Requests waiting or being answered."""
    parent: str | None
    """The base model of an adapter (LoRA)."""
    root: str
    """The model that computes the answers: itself, or an adapter's base model."""
    permission: list[ModelPermission]
    progress: float | None
    """Share of the model's bytes that have been read, 0 to 1; null unless it is being loaded."""
    default_sampling: dict[str, float]
    """Values of a request without its own: temperature, top_p, ...; empty for an encoder."""


class ModelList(TypedDict):
    """The answer of /v1/models."""

    object: Literal["list"]
    data: list[Model]


class EncoderUsage(TypedDict):
    """Token counts of all texts of a request together."""

    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """The embedding of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    """Numbers, or base64 of little-endian float32, by `encoding_format`."""


class EmbeddingList(TypedDict):
    """The answer of /v1/embeddings, in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EncoderUsage


class AudioUsage(TypedDict):
    """What is counted of a recording."""

    type: Literal["duration"]
    seconds: int


class TranscriptionSegment(TypedDict):
    """A part of a transcript between two of the model's timestamps; times are in seconds."""

    id: int
    seek: int
    """The frame, of 10 ms, at which its window begins."""
    start: float
    end: float
    text: str
    tokens: list[int]
    avg_logprob: float
    """The mean of its window's tokens."""
    compression_ratio: float
    temperature: float
    """At which its window was transcribed."""


class TranscriptionWord(TypedDict):
    """A word of a transcript, with its times in seconds."""

    word: str
    start: float
    end: float


class _Verbose(TypedDict, total=False):
    task: str
    """transcribe or translate, as all below in the format verbose_json."""
    language: str
    duration: float
    """Seconds of the recording."""
    segments: list[TranscriptionSegment]
    words: list[TranscriptionWord]
    """If `timestamp_granularities` asks for them."""


class Transcription(_Verbose):
    """The answer of /v1/audio/transcriptions and /translations in the formats json and
    verbose_json."""

    text: str
    usage: AudioUsage


class _TranscriptText(TypedDict, total=False):
    delta: str
    """A part of the text, in transcript.text.delta."""
    text: str
    """All of it, in transcript.text.done."""
    usage: AudioUsage


class TranscriptEvent(_TranscriptText):
    """A server-sent event of a transcript."""

    type: str
    """transcript.text.delta, or transcript.text.done at the end."""


class Score(TypedDict):
    """The score of one pair of texts."""

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


class Classified(TypedDict):
    """The class of one text."""

    index: int
    label: str
    """The likeliest class."""
    probs: list[float]
    """The probability of each class, in the model's order."""
    num_classes: int


class ClassList(TypedDict):
    """The answer of /classify."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Classified]
    usage: EncoderUsage


class RankedText(TypedDict):
    """A document, as it was sent."""

    text: str


class _WithDocument(TypedDict, total=False):
    document: RankedText
    """Unless `return_documents` was false."""


class Ranked(_WithDocument):
    """Rank of one document."""

    index: int
    """Index among the documents of the request."""
    relevance_score: float


class Ranking(TypedDict):
    """The answer of /v1/rerank: the best document first."""

    id: str
    model: str
    usage: EncoderUsage
    results: list[Ranked]


class ErrorObject(TypedDict):
    """Message, type, field and code of an error."""

    message: str
    """What happened, why, and what to do next."""
    type: str
    """invalid_request_error, or server_error."""
    param: str | None
    """The field of the request that is wrong."""
    code: str | None
    """Stable, for programs: context_length_exceeded, queue_full, device_lost, ..."""


class ErrorBody(TypedDict):
    """The body of an error response, and the last event of a stream that failed."""

    error: ErrorObject
