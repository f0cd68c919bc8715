"""Requests and answers of `Engine` and `AsyncEngine`, for type checkers and editors.

Written by `python -m tools.api_types` from mlcc.api: change that and run it again. At run time an
answer is a `View`, and the classes here describe its attributes; an absent one reads as None.
"""

# fmt: off
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from mlcc.local.view import View

if TYPE_CHECKING:
    from typing_extensions import Required


class TextPart(TypedDict, total=False):
    """A part of a message."""

    type: Required[Literal["text"]]
    text: Required[str]


class ImageURL(TypedDict, total=False):
    """An image, and how closely the model looks at it."""

    url: Required[str]
    """The image as a data URL: data:image/png;base64,..."""
    detail: Literal["auto", "low", "high", "original"] | None
    """low = few tokens: without tiles, or of fewer pixels."""


class ImagePart(TypedDict, total=False):
    """A part of a message: an image, for a model that sees."""

    type: Required[Literal["image_url"]]
    image_url: Required[str | ImageURL]
    """An image."""


class InputAudio(TypedDict, total=False):
    """A sound in the bytes of its file."""

    data: Required[str]
    """The file as base64."""
    format: Literal["wav", "flac", "mp3", "ogg", "m4a", "aac", "webm", "caf", "amr", "aiff"] | None
    """What the file is; its first bytes decide. Ogg and mp3 need the extra `audio`, those from m4a
    on the extra `av`."""


class AudioPart(TypedDict, total=False):
    """A part of a message: a sound, for a model that hears."""

    type: Required[Literal["input_audio"]]
    input_audio: Required[InputAudio]
    """A sound."""


class RefusalPart(TypedDict, total=False):
    """A part of an assistant's message: words in which it refused."""

    type: Required[Literal["refusal"]]
    refusal: Required[str]


class CalledFunction(TypedDict, total=False):
    """The function of a call."""

    name: Required[str]
    """The tool's name."""
    arguments: str | None
    """As JSON's text."""


class MessageToolCall(TypedDict, total=False):
    """A tool call in an assistant's message."""

    id: str | None
    """The id that the tool's message refers to."""
    type: Literal["function"] | None
    function: Required[CalledFunction]
    """The called function."""
    index: object
    """Accepted; never affects an answer."""


class ToolFunction(TypedDict, total=False):
    """A function that the model may call."""

    name: Required[str]
    """The tool's name."""
    description: str | None
    """The tool's purpose, for the model."""
    parameters: object
    """The schema of its arguments; without, it takes none."""
    strict: bool | None
    """Refuse a schema that cannot be enforced in full, instead of enforcing a part of it."""


class Tool(TypedDict, total=False):
    """A tool that the model may call."""

    type: Required[Literal["function"]]
    function: Required[ToolFunction]
    """The function."""


class NamedFunction(TypedDict, total=False):
    """A function of `tools`, by its name."""

    name: Required[str]


class NamedTool(TypedDict, total=False):
    """The tool to call."""

    type: Required[Literal["function"]]
    function: Required[NamedFunction]
    """The function to call."""


class AllowedToolsList(TypedDict, total=False):
    """The allowed ones of `tools`."""

    mode: Required[Literal["auto", "required"]]
    """Whether a tool must be called."""
    tools: Required[Sequence[NamedTool]]
    """The allowed tools, from `tools`."""


class AllowedTools(TypedDict, total=False):
    """A choice among some of `tools`."""

    type: Required[Literal["allowed_tools"]]
    allowed_tools: Required[AllowedToolsList]
    """The tools that may be called."""


class ThinkingSwitch(TypedDict, total=False):
    """Whether and how long the model reasons."""

    type: Required[str]
    """Whether the model reasons; adaptive = the model decides."""
    budget_tokens: int | None
    """Another name of `thinking_budget`."""
    display: object
    """Accepted; never affects an answer."""


class Message(TypedDict, total=False):
    """One message of a conversation."""

    role: Required[Literal["system", "developer", "user", "assistant", "tool", "function"]]
    """Author; developer is another name of system, function an older one of tool."""
    content: str | Sequence[TextPart | ImagePart | AudioPart | RefusalPart] | None
    """A text, or parts that are joined: texts, images for a model that sees, and sounds for one
    that hears. May be null in an assistant's or a tool's message. A model that reads text only
    leaves images and sounds out of a tool's message, and refuses others."""
    name: str | None
    """Name of the author, for templates that support names."""
    tool_calls: Sequence[MessageToolCall] | None
    """An assistant's tool calls."""
    tool_call_id: str | None
    """The call that a tool's message answers."""
    function_call: CalledFunction | None
    """The older form of one tool call."""
    reasoning_content: str | None
    """The assistant's reasoning before this text."""
    reasoning: str | None
    """Another name of `reasoning_content`."""
    prefix: bool | None
    """Of an assistant's last message: the answer continues this text and begins with it."""
    refusal: str | None
    """Words in which the assistant refused, read as its text."""
    annotations: object
    """Accepted; never affects an answer."""


class StreamOptions(TypedDict, total=False):
    """Options of a stream."""

    include_usage: bool | None
    """End the stream with a chunk of token counts."""


class Prediction(TypedDict, total=False):
    """Predicted content of an answer."""

    type: Required[Literal["content"]]
    """Always `content`."""
    content: Required[str | Sequence[TextPart]]
    """The text, or texts that are joined."""


class JsonSchemaFormat(TypedDict, total=False):
    """A JSON Schema, in OpenAI's form."""

    schema: Required[object]
    """The schema of the answer."""
    name: object
    """Accepted; never affects an answer."""
    description: object
    """Accepted; never affects an answer."""
    strict: bool | None
    """Refuse a schema that cannot be enforced in full, instead of enforcing a part of it."""


class ResponseFormat(TypedDict, total=False):
    """Format of an answer."""

    type: Required[Literal["text", "json_object", "json_schema"]]
    """Type of the answer."""
    json_schema: JsonSchemaFormat | None
    """Only with the type `json_schema`."""
    schema: object
    """llama.cpp's place of a schema, with either JSON type."""


class StructuredOutputs(TypedDict, total=False):
    """Constraints on an answer in vLLM's form: one of these."""

    json: object
    """A JSON Schema."""
    json_object: bool | None
    """Any JSON object."""
    regex: str | None
    """A regular expression for the whole answer."""
    choice: Sequence[str] | None
    """The answer is one of these."""
    grammar: str | None
    """A grammar, in GBNF or Lark."""
    disable_fallback: object
    """Accepted; never affects an answer."""


class ChatCompletionRequest(TypedDict, total=False):
    """The body of POST /v1/chat/completions."""

    messages: Required[Sequence[Message]]
    """The conversation so far."""
    model: str | None
    """The model's name; optional if there is only one."""
    stream_options: StreamOptions | None
    """Only with `stream`."""
    n: int | None
    """Answers to each prompt, which is computed once; each gets a seed derived from `seed`. From 1
    to 128."""
    cache_salt: str | None
    """Requests share the prefix cache only with requests of the same salt."""
    priority: int | None
    """Lower is answered first among the requests of an API key; waiting requests gain priority with
    time. From -100 to 100."""
    timeout: float | None
    """Time limit of the answer in seconds, within the server's own."""
    user: object
    """Accepted; never affects an answer."""
    metadata: object
    """Accepted; never affects an answer."""
    store: object
    """Accepted; never affects an answer."""
    response_format: ResponseFormat | None
    """The answer is JSON."""
    structured_outputs: StructuredOutputs | None
    """One constraint on the answer."""
    guided_json: object
    """vLLM's older name of a JSON Schema."""
    guided_regex: str | None
    """vLLM's older name of a regular expression."""
    guided_choice: Sequence[str] | None
    """vLLM's older name of a list of answers."""
    guided_grammar: str | None
    """vLLM's older name of a grammar."""
    guided_decoding_backend: object
    """Accepted; never affects an answer."""
    grammar: str | None
    """llama.cpp's name of a grammar in GBNF."""
    json_schema: object
    """llama.cpp's name of a JSON Schema."""
    temperature: float | None
    """Divides the logits; 0 always samples the likeliest token. From 0 to 2."""
    top_p: float | None
    """Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From 0 to
    1."""
    top_k: int | None
    """Keep this many of the likeliest tokens; 0 and -1 keep all."""
    min_p: float | None
    """Drop tokens less likely than this share of the likeliest one's. From 0 to 1."""
    seed: int | None
    """The same seed and prompt give the same answer."""
    stop: str | Sequence[str] | None
    """The answer ends before the first of these in its text; reasoning and calls may hold them."""
    include_stop_str_in_output: bool | None
    """The answer ends behind the string of `stop` instead."""
    max_tokens: int | None
    """Longest answer in tokens; -1 = as long as the context allows."""
    ignore_eos: bool | None
    """Ignore end-of-sequence tokens, for benchmarks."""
    min_tokens: int | None
    """Suppress end-of-sequence tokens before this many tokens."""
    stop_token_ids: Sequence[int] | None
    """Tokens that end the answer, in addition to the model's own."""
    frequency_penalty: float | None
    """Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to 2.
    """
    presence_penalty: float | None
    """Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2."""
    repetition_penalty: float | None
    """Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10."""
    repeat_penalty: float | None
    """llama.cpp's name of `repetition_penalty`. From 0.01 to 10."""
    repeat_last_n: int | None
    """Window of these three penalties in tokens; -1 = all."""
    logit_bias: Mapping[str, float] | None
    """Added to the logits of tokens, by id."""
    bad_words: Sequence[str] | None
    """Words that the answer must not contain, as token sequences, with and without a space."""
    top_n_sigma: float | None
    """Keep logits within this many standard deviations of the largest; 0 and below keep all."""
    typical_p: float | None
    """Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From 0 to
    1."""
    epsilon_cutoff: float | None
    """Drop tokens below this probability. From 0 to 1."""
    eta_cutoff: float | None
    """Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1."""
    xtc_probability: float | None
    """How often all tokens from `xtc_threshold` on are excluded but the least likely of them. From
    0 to 1."""
    xtc_threshold: float | None
    """The least probability of a top choice. From 0 to 1."""
    dynatemp_range: float | None
    """Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100."""
    dynatemp_exponent: float | None
    """Exponent of the map from entropy to that range. From 0 to 100."""
    mirostat: int | None
    """2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters."""
    mirostat_tau: float | None
    """Target surprise of a token, in bits. From 0 to 100."""
    mirostat_eta: float | None
    """Learning rate of mirostat. From 0 to 1."""
    dry_multiplier: float | None
    """Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0 to
    100."""
    dry_base: float | None
    """Growth of the penalty with the repetition's length. From 1 to 100."""
    dry_allowed_length: int | None
    """Longest repetition without a penalty."""
    dry_penalty_last_n: int | None
    """Window of the penalty in tokens; -1 = all."""
    dry_sequence_breakers: Sequence[str] | None
    """A repetition does not extend over a token that contains one of these."""
    max_completion_tokens: int | None
    """The newer name of `max_tokens`."""
    logprobs: bool | None
    """Report the log-probability of each token of the answer."""
    top_logprobs: int | None
    """With `logprobs`: report this many of the likeliest tokens at each position, too. From 0 to
    20."""
    tools: Sequence[Tool] | None
    """Functions that the model may call."""
    tool_choice: Literal["auto", "none", "required"] | NamedTool | AllowedTools | None
    """auto = the model decides; none; required = at least one call; or a named function."""
    parallel_tool_calls: bool | None
    """false: one call at most in an answer."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None
    """Reasoning effort, if the chat template supports it; none = no reasoning."""
    enable_thinking: bool | None
    """Whether the model reasons, if its template supports it."""
    thinking_budget: int | None
    """Most tokens of reasoning; the answer begins after them."""
    thinking: ThinkingSwitch | None
    """Switch and budget in the form of Anthropic and others."""
    chat_template_kwargs: object
    """Variables of the model's chat template."""
    continue_final_message: bool | None
    """The answer continues the last message, an assistant's, as with its `prefix`."""
    add_generation_prompt: bool | None
    """false: the prompt ends with the last message, and the model may go on with any role."""
    prediction: Prediction | None
    """Predicted text of the answer, such as the file being edited: faster, with the same answer."""
    prompt_cache_key: object
    """Accepted; never affects an answer."""
    prompt_cache_options: object
    """Accepted; never affects an answer."""
    prompt_cache_retention: object
    """Accepted; never affects an answer."""
    safety_identifier: object
    """Accepted; never affects an answer."""
    service_tier: object
    """Accepted; never affects an answer."""


class CompletionRequest(TypedDict, total=False):
    """The body of POST /v1/completions."""

    prompt: Required[str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]]
    """One prompt or several; each gets an answer."""
    model: str | None
    """The model's name; optional if there is only one."""
    stream_options: StreamOptions | None
    """Only with `stream`."""
    n: int | None
    """Answers to each prompt, which is computed once; each gets a seed derived from `seed`. From 1
    to 128."""
    cache_salt: str | None
    """Requests share the prefix cache only with requests of the same salt."""
    priority: int | None
    """Lower is answered first among the requests of an API key; waiting requests gain priority with
    time. From -100 to 100."""
    timeout: float | None
    """Time limit of the answer in seconds, within the server's own."""
    user: object
    """Accepted; never affects an answer."""
    metadata: object
    """Accepted; never affects an answer."""
    store: object
    """Accepted; never affects an answer."""
    response_format: ResponseFormat | None
    """The answer is JSON."""
    structured_outputs: StructuredOutputs | None
    """One constraint on the answer."""
    guided_json: object
    """vLLM's older name of a JSON Schema."""
    guided_regex: str | None
    """vLLM's older name of a regular expression."""
    guided_choice: Sequence[str] | None
    """vLLM's older name of a list of answers."""
    guided_grammar: str | None
    """vLLM's older name of a grammar."""
    guided_decoding_backend: object
    """Accepted; never affects an answer."""
    grammar: str | None
    """llama.cpp's name of a grammar in GBNF."""
    json_schema: object
    """llama.cpp's name of a JSON Schema."""
    temperature: float | None
    """Divides the logits; 0 always samples the likeliest token. From 0 to 2."""
    top_p: float | None
    """Keep the smallest set of the likeliest tokens with at least this mass; 1 keeps all. From 0 to
    1."""
    top_k: int | None
    """Keep this many of the likeliest tokens; 0 and -1 keep all."""
    min_p: float | None
    """Drop tokens less likely than this share of the likeliest one's. From 0 to 1."""
    seed: int | None
    """The same seed and prompt give the same answer."""
    stop: str | Sequence[str] | None
    """The answer ends before the first of these in its text; reasoning and calls may hold them."""
    include_stop_str_in_output: bool | None
    """The answer ends behind the string of `stop` instead."""
    ignore_eos: bool | None
    """Ignore end-of-sequence tokens, for benchmarks."""
    min_tokens: int | None
    """Suppress end-of-sequence tokens before this many tokens."""
    stop_token_ids: Sequence[int] | None
    """Tokens that end the answer, in addition to the model's own."""
    frequency_penalty: float | None
    """Lowers a token's logit for each time it is in the answer; below 0, raises it. From -2 to 2.
    """
    presence_penalty: float | None
    """Lowers the logits of tokens in the answer; below 0, raises them. From -2 to 2."""
    repetition_penalty: float | None
    """Above 1, makes tokens of prompt and answer less likely. From 0.01 to 10."""
    repeat_penalty: float | None
    """llama.cpp's name of `repetition_penalty`. From 0.01 to 10."""
    repeat_last_n: int | None
    """Window of these three penalties in tokens; -1 = all."""
    logit_bias: Mapping[str, float] | None
    """Added to the logits of tokens, by id."""
    bad_words: Sequence[str] | None
    """Words that the answer must not contain, as token sequences, with and without a space."""
    top_n_sigma: float | None
    """Keep logits within this many standard deviations of the largest; 0 and below keep all."""
    typical_p: float | None
    """Keep this mass of the tokens whose surprise is nearest to the entropy; 1 keeps all. From 0 to
    1."""
    epsilon_cutoff: float | None
    """Drop tokens below this probability. From 0 to 1."""
    eta_cutoff: float | None
    """Drop tokens below this probability; the threshold falls with the entropy. From 0 to 1."""
    xtc_probability: float | None
    """How often all tokens from `xtc_threshold` on are excluded but the least likely of them. From
    0 to 1."""
    xtc_threshold: float | None
    """The least probability of a top choice. From 0 to 1."""
    dynatemp_range: float | None
    """Range of the temperature: lower at low entropy, higher at high entropy. From 0 to 100."""
    dynatemp_exponent: float | None
    """Exponent of the map from entropy to that range. From 0 to 100."""
    mirostat: int | None
    """2 keeps the surprise of the answer near `mirostat_tau`, instead of other filters."""
    mirostat_tau: float | None
    """Target surprise of a token, in bits. From 0 to 100."""
    mirostat_eta: float | None
    """Learning rate of mirostat. From 0 to 1."""
    dry_multiplier: float | None
    """Above 0, penalizes a token that would extend a repetition, more for a longer one. From 0 to
    100."""
    dry_base: float | None
    """Growth of the penalty with the repetition's length. From 1 to 100."""
    dry_allowed_length: int | None
    """Longest repetition without a penalty."""
    dry_penalty_last_n: int | None
    """Window of the penalty in tokens; -1 = all."""
    dry_sequence_breakers: Sequence[str] | None
    """A repetition does not extend over a token that contains one of these."""
    max_tokens: int | None
    """Longest answer in tokens; -1 = as long as the context allows, 0 = none: the prompt alone is
    computed."""
    echo: bool | None
    """Send the prompt before the answer, and its `logprobs`."""
    best_of: int | None
    """Generate this many answers and send the `n` likeliest, by mean log-probability; with `stream`
    it must equal `n`. From 1 to 128."""
    suffix: str | None
    """Text after the gap to fill; for models that were trained for it."""
    logprobs: int | None
    """Report the log-probability of each token of the answer, and of this many of the likeliest at
    its position. From 0 to 20."""


class EmbeddingRequest(TypedDict, total=False):
    """The body of POST /v1/embeddings."""

    input: Required[str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]]
    """One text or several; each becomes an embedding."""
    encoding_format: Literal["float", "base64"] | None
    """Format of the numbers."""
    dimensions: int | None
    """Keep the first numbers of each embedding, normalized to length 1 again; useful for models
    that were trained for it (Matryoshka)."""
    prompt_name: str | None
    """Name of the model's prompt that is put before each text."""
    model: str | None
    """The model's name."""
    truncate_prompt_tokens: int | None
    """Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a longer
    text is an error."""
    timeout: float | None
    """Time limit of the whole request in seconds."""
    priority: int | None
    """Lower is served first. From -100 to 100."""
    user: object
    """Accepted; never affects an answer."""


class ScoreRequest(TypedDict, total=False):
    """The body of POST /v1/score."""

    text_1: str | Sequence[str] | None
    """First texts of the pairs."""
    text_2: str | Sequence[str] | None
    """Second texts of the pairs."""
    model: str | None
    """The model's name."""
    truncate_prompt_tokens: int | None
    """Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a longer
    text is an error."""
    timeout: float | None
    """Time limit of the whole request in seconds."""
    priority: int | None
    """Lower is served first. From -100 to 100."""
    user: object
    """Accepted; never affects an answer."""


class ClassifyRequest(TypedDict, total=False):
    """The body of POST /classify."""

    input: Required[str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]]
    """One text or several; each gets a class."""
    use_activation: bool | None
    """false: logits, not probabilities; true by default."""
    activation: bool | None
    """vLLM's older name of `use_activation`."""
    model: str | None
    """The model's name."""
    truncate_prompt_tokens: int | None
    """Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a longer
    text is an error."""
    timeout: float | None
    """Time limit of the whole request in seconds."""
    priority: int | None
    """Lower is served first. From -100 to 100."""
    user: object
    """Accepted; never affects an answer."""


class RerankDocument(TypedDict, total=False):
    """A document that is ranked."""

    text: Required[str]
    """The document's text."""


class RerankRequest(TypedDict, total=False):
    """The body of POST /v1/rerank."""

    query: Required[str]
    """The query that documents are ranked by."""
    documents: Required[Sequence[str | RerankDocument]]
    """The documents."""
    top_n: int | None
    """Return the best ones only; all by default."""
    return_documents: bool | None
    """Repeat the documents; true by default."""
    model: str | None
    """The model's name."""
    truncate_prompt_tokens: int | None
    """Cut longer texts to this many tokens, -1 = the most that the model takes. Otherwise a longer
    text is an error."""
    timeout: float | None
    """Time limit of the whole request in seconds."""
    priority: int | None
    """Lower is served first. From -100 to 100."""
    user: object
    """Accepted; never affects an answer."""


FinishReason = Literal["stop", "length", "tool_calls"]
"""stop = the model ended its answer, or a stop string matched; length = the token limit or the
context was reached; tool_calls = it ended with tool calls."""


class PromptTokensDetails(View):
    """Breakdown of the prompts' tokens."""

    cached_tokens: int
    """Tokens that the prefix cache had."""
    image_tokens: int | None
    """Tokens that stand for images, which `prompt_tokens` counts; present if there are any."""
    audio_tokens: int | None
    """The same of sound."""


class CompletionTokensDetails(View):
    """Tokens of the reasoning, and draft tokens (`--speculate`, `prediction`); what there was."""

    reasoning_tokens: int | None
    """Tokens between the marks of the reasoning."""
    accepted_prediction_tokens: int | None
    """Draft tokens that became a part of the answers."""
    rejected_prediction_tokens: int | None
    """Rejected draft tokens; they are not in `completion_tokens`."""


class Usage(View):
    """Token counts of all answers of a request together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | None
    """Present if there was reasoning, or tokens were drafted."""


class FunctionCall(View):
    """Name and arguments of a call."""

    name: str
    arguments: str
    """JSON text of an object."""


class ToolCall(View):
    """A tool call by the model."""

    id: str
    """The id that the tool's message refers to."""
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(View):
    """The answer of a chat."""

    role: Literal["assistant"]
    content: str | None
    """null beside `tool_calls` if there is no text."""
    refusal: None
    reasoning_content: str | None
    """The model's reasoning, if it was separated from the answer."""
    tool_calls: list[ToolCall] | None
    """Tool calls, if there are any."""


class ChatToken(View):
    """A token and its log-probability, from the logits after penalties and biases, before
    temperature and filters."""

    token: str
    """Its text, with U+FFFD for a part of a character."""
    logprob: float
    """Natural logarithm; -9999 is the minimum."""
    bytes: list[int] | None
    """UTF-8 bytes of its text, or of its part of a character; null if they are not known."""


class ChatTokenLogprob(View):
    """A token of an answer."""

    top_logprobs: list[ChatToken]
    """The likeliest tokens at its position, likeliest first, without control tokens."""
    token: str
    """Its text, with U+FFFD for a part of a character."""
    logprob: float
    """Natural logarithm; -9999 is the minimum."""
    bytes: list[int] | None
    """UTF-8 bytes of its text, or of its part of a character; null if they are not known."""


class ChatLogprobs(View):
    """Log-probabilities of the tokens of the text beside it, without what stop strings cut off."""

    content: list[ChatTokenLogprob]
    refusal: None


class ChatChoice(View):
    """One answer of a chat completion."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    """If the request has `logprobs`."""
    finish_reason: FinishReason


class ChatCompletion(View):
    """A whole answer of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    """Seconds since 1970."""
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str | None
    """Identifies the artifact: it changes only if its files change."""


class FunctionDelta(View):
    """Parts of a name and of arguments that a chunk adds."""

    name: str | None
    arguments: str | None


class ToolCallDelta(View):
    """What a chunk adds to a call: first its id and name, then its arguments."""

    index: int
    """Number of the call in the answer."""
    function: FunctionDelta
    id: str | None
    type: Literal["function"] | None


class ChatDelta(View):
    """What a chunk adds to the answer; the first one names the role, the last one is empty."""

    role: Literal["assistant"] | None
    content: str | None
    reasoning_content: str | None
    tool_calls: list[ToolCallDelta] | None


class ChatChunkChoice(View):
    """A piece of one answer of a chat completion."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    """If the request has `logprobs`, beside text."""
    finish_reason: FinishReason | None
    """Why the answer ended, in its last chunk."""


class ChatCompletionChunk(View):
    """A server-sent event of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    system_fingerprint: str | None
    """Identifies the artifact: it changes only if its files change."""
    usage: Usage | None | None
    """With `stream_options.include_usage`: in a last chunk without choices, null before."""


class CompletionLogprobs(View):
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


class CompletionChoice(View):
    """The answer to one prompt; `index` is the prompt's number."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    """If the request has `logprobs`."""
    finish_reason: FinishReason


class Completion(View):
    """A whole answer of /v1/completions, one choice per prompt."""

    id: str
    object: Literal["text_completion"]
    created: int
    """Seconds since 1970."""
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    system_fingerprint: str | None
    """Identifies the artifact: it changes only if its files change."""


class CompletionChunkChoice(View):
    """A piece of the answer to one prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    """If the request has `logprobs`."""
    finish_reason: FinishReason | None
    """Why the answer ended, in its last chunk."""


class CompletionChunk(View):
    """A server-sent event of /v1/completions; those of several prompts are interleaved."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    system_fingerprint: str | None
    """Identifies the artifact: it changes only if its files change."""
    usage: Usage | None | None
    """With `stream_options.include_usage`: in a last chunk without choices, null before."""


ModelState = Literal["loaded", "loading", "unloaded", "sleeping"]
"""loaded = ready; loading = requests wait for it; unloaded = the next request loads it; sleeping =
out of memory until /wake_up."""


class ImageSize(View):
    """Bounds in pixels: a model reads nothing more of an image that is larger than any of them."""

    longest_edge: int | None
    shortest_edge: int | None
    max_pixels: int | None
    """Width times height."""


class ModelPermission(View):
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


class Model(View):
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
    input_modalities: list[str] | None
    """Of a model that sees or hears: text, and image or audio."""
    image_size: ImageSize | None
    """Of a model that sees: clients may scale larger images down to it."""


class ModelList(View):
    """The answer of /v1/models."""

    object: Literal["list"]
    data: list[Model]


class EncoderUsage(View):
    """Token counts of all texts of a request together."""

    prompt_tokens: int
    total_tokens: int


class Embedding(View):
    """The embedding of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    """Numbers, or base64 of little-endian float32, by `encoding_format`."""


class EmbeddingList(View):
    """The answer of /v1/embeddings, in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EncoderUsage


class AudioUsage(View):
    """What is counted of a recording."""

    type: Literal["duration"]
    seconds: int


class TranscriptionSegment(View):
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


class TranscriptionWord(View):
    """A word of a transcript, with its times in seconds."""

    word: str
    start: float
    end: float


class Transcription(View):
    """The answer of /v1/audio/transcriptions and /translations in the formats json and
    verbose_json."""

    text: str
    usage: AudioUsage
    task: str | None
    """transcribe or translate, as all below in the format verbose_json."""
    language: str | None
    duration: float | None
    """Seconds of the recording."""
    segments: list[TranscriptionSegment] | None
    words: list[TranscriptionWord] | None
    """If `timestamp_granularities` asks for them."""


class TranscriptEvent(View):
    """A server-sent event of a transcript."""

    type: str
    """transcript.text.delta, or transcript.text.done at the end."""
    delta: str | None
    """A part of the text, in transcript.text.delta."""
    text: str | None
    """All of it, in transcript.text.done."""
    usage: AudioUsage | None


class Score(View):
    """The score of one pair of texts."""

    index: int
    object: Literal["score"]
    score: float


class ScoreList(View):
    """The answer of /v1/score."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: EncoderUsage


class Classified(View):
    """The class of one text."""

    index: int
    label: str
    """The likeliest class."""
    probs: list[float]
    """The probability of each class, in the model's order."""
    num_classes: int


class ClassList(View):
    """The answer of /classify."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Classified]
    usage: EncoderUsage


class RankedText(View):
    """A document, as it was sent."""

    text: str


class Ranked(View):
    """Rank of one document."""

    index: int
    """Index among the documents of the request."""
    relevance_score: float
    document: RankedText | None
    """Unless `return_documents` was false."""


class Ranking(View):
    """The answer of /v1/rerank: the best document first."""

    id: str
    model: str
    usage: EncoderUsage
    results: list[Ranked]


class ErrorObject(View):
    """Message, type, field and code of an error."""

    message: str
    """What happened, why, and what to do next."""
    type: str
    """invalid_request_error, or server_error."""
    param: str | None
    """The field of the request that is wrong."""
    code: str | None
    """Stable, for programs: context_length_exceeded, queue_full, device_lost, ..."""


class ErrorBody(View):
    """The body of an error response, and the last event of a stream that failed."""

    error: ErrorObject
