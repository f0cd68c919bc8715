"""Requests of the OpenAI API as dataclasses, parsed from plain JSON objects.

The fields are in `mlcc.api.schema.chat_fields`. Sampling parameters are the request's own fields,
then the model's defaults, then plain sampling: the table `SAMPLING` lists the fields, and
`SamplingParams` defines what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from mlcc.api.schema.chat_fields import (
    CHAT,
    COMPLETION,
    DEFAULT_REASONING,
    SAMPLING,
    ReasoningOptions,
    prediction_of,
    reasoning_options,
)
from mlcc.api.schema.message_fields import messages_of
from mlcc.api.schema.schema import Json, Object
from mlcc.api.schema.structured_output import structure_of
from mlcc.api.schema.tool_fields import NO_TOOLS, ToolUse, tool_use
from mlcc.engine.batch.random import derive_seed
from mlcc.engine.request import SamplingParams
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError
from mlcc.multimodal.placeholders import MediaCollector, PromptMedia
from mlcc.util.fast_dataclass import fast_dataclass

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for /v1/completions."""

MOST_LETTERS = 100
"""Longest bad word in characters."""

INSTEAD = {
    "top_k": 0, "top_p": 1, "min_p": 0, "top_n_sigma": 0, "typical_p": 1,
    "epsilon_cutoff": 0, "eta_cutoff": 0, "xtc_probability": 0,
}  # fmt: skip
"""Filters that mirostat replaces, and the values that turn them off."""

SamplingOptions: TypeAlias = Mapping[str, Any]
"""Some attributes of `SamplingParams`, by name, from a request or a model's recommendation."""


def parse_sampling(table: Object, fields: Mapping[str, Any]) -> SamplingOptions:
    """The sampling options of checked fields. Raises InvalidRequestError for conflicting values."""
    sources: dict[str, str] = {}
    found: dict[str, Any] = {}
    for row in table.fields:
        if not row.sets or row.name not in fields:
            continue
        value = row.made(fields[row.name])
        if row.sets in sources and value != found[row.sets]:
            first = sources[row.sets]
            raise InvalidRequestError(
                f"'{first}' is {fields[first]} and '{row.name}' is {fields[row.name]}, and they "
                "mean the same; send one of them",
                param=first,
                code="invalid_value",
            )
        sources[row.sets], found[row.sets] = row.name, value
    return found


def recommended(config: Mapping[str, Any]) -> SamplingOptions:
    """The recommended sampling from a model's generation_config.json, as far as it is valid.

    transformers' own default of top_k = 50 is not a recommendation and is not taken over.
    """
    found: dict[str, Any] = {}
    for row in SAMPLING:
        if row.recommended and (value := config.get(row.name)) is not None:
            try:
                found[row.sets] = row.made(row.type.check(value, row.name))
            except InvalidRequestError:
                continue  # NaN, 400 digits, a text: ignored
    if config.get("do_sample") is False:
        penalty = {k: v for k, v in found.items() if k == "repetition_penalty"}
        return {"temperature": 0.0, **penalty}  # nothing else changes a greedy answer
    return found


_SHOWN = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)


def default_sampling(config: Mapping[str, Any]) -> dict[str, float]:
    """The sampling of a request without parameters of its own, for people: the recommended values
    of a generation_config.json, else the engine's."""
    params = SamplingParams(**recommended(config))
    return {name: getattr(params, name) for name in _SHOWN}


def with_word_ids(
    fields: SamplingOptions, encode: Callable[[str], Sequence[int]]
) -> SamplingOptions:
    """`bad_words` as token ids, at the start of a text and after a space. Raises
    InvalidRequestError for a word that is too long."""
    if not (words := fields.get("bad_words")):
        return fields
    if long := next((f"bad_words[{i}]" for i, w in enumerate(words) if len(w) > MOST_LETTERS), ""):
        raise InvalidRequestError(
            f"'{long}' has more than {MOST_LETTERS} characters; give words or short phrases",
            param=long,
            code="invalid_value",
        )
    ids = (tuple(encode(text)) for word in words for text in (word, f" {word.lstrip()}"))
    return {**fields, "bad_words": tuple(dict.fromkeys(filter(None, ids)))}


def to_params(
    fields: SamplingOptions, defaults: SamplingOptions, *, max_tokens: int | None = None
) -> SamplingParams:
    """The engine's parameters; `max_tokens`: the endpoint's default."""
    if fields.get("mirostat"):
        defaults = {name: value for name, value in defaults.items() if name not in INSTEAD}
        for name, none in INSTEAD.items():
            if fields.get(name, none) != none:
                raise InvalidRequestError(
                    f"'mirostat' takes the place of '{name}'; send one of them",
                    param=name,
                    code="invalid_value",
                )
    return SamplingParams(**{"max_tokens": max_tokens, **defaults, **fields})


def of_answer(params: SamplingParams, number: int) -> SamplingParams:
    """Parameters of answer `number`: of several answers with one seed, each gets its own."""
    if params.seed is None or not number:
        return params
    return replace(params, seed=derive_seed(params.seed, number))


@fast_dataclass(frozen=True)
class Delivery:
    """How a request is answered: model, number of answers, streaming, deadline and priority."""

    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    n: int = 1
    """Answers sent for each prompt: the likeliest of those generated."""
    made: int = 1
    """Answers generated for each prompt."""
    cache_salt: str = ""
    priority: int = 0
    timeout: float | None = None
    """In seconds; None = the service's limit."""


@fast_dataclass(frozen=True)
class ChatRequest:
    """POST /v1/chat/completions."""

    messages: tuple[dict[str, Any], ...]
    """Input of the chat template: role, content, tool calls ..."""
    sampling: SamplingOptions
    delivery: Delivery
    structure: Structure | None = None
    """Constraint on the answer."""
    use: ToolUse = NO_TOOLS
    reasoning: ReasoningOptions = DEFAULT_REASONING
    prediction: str = ""
    """Predicted text of the answer."""
    generation_prompt: bool = True
    """Whether the prompt ends with the beginning of the model's turn."""
    media: PromptMedia | None = None
    """Images, for which the messages have placeholders."""


@fast_dataclass(frozen=True)
class CompletionRequest:
    """POST /v1/completions: one answer per prompt, each text or token ids."""

    prompts: tuple[str | list[int], ...]
    sampling: SamplingOptions
    delivery: Delivery
    structure: Structure | None = None
    """Constraint on the answer."""
    echo: bool = False
    """Send the prompt before the answer."""
    suffix: str = ""
    """Text after the gap that the answer fills; "" = there is none."""


def parse_chat(body: Json, sees: bool = False, hears: bool = False) -> ChatRequest:
    """A chat request. sees, hears: whether the model reads images and sound. Raises
    InvalidRequestError or UnsupportedError naming the field."""
    fields = CHAT.check(body, "")
    collector = MediaCollector(sees, hears) if sees or hears else None
    messages = messages_of(fields["messages"], collector)
    media = collector.collected() if collector else None
    _continue_last(messages, fields)
    for i, message in enumerate(messages[:-1]):
        if "prefix" in message:
            raise InvalidRequestError(
                f"'messages[{i}].prefix' is true, but only the last message can be gone on with",
                param=f"messages[{i}].prefix",
                code="invalid_value",
            )
    sampling = {**parse_sampling(CHAT, fields), **_top_logprobs(fields)}
    structure, use = structure_of(fields), tool_use(fields)
    if structure is not None and use.mode == "required":
        raise InvalidRequestError(
            f"'{structure.field}' says what the answer must be, and 'tool_choice' that it must be "
            "a call; send one of them",
            param="tool_choice",
            code="invalid_value",
        )
    reasoning, prediction = reasoning_options(fields), prediction_of(fields)
    ends = fields.get("add_generation_prompt", True)
    delivery = _delivery(fields)
    return ChatRequest(
        messages, sampling, delivery, structure, use, reasoning, prediction, ends, media
    )


def _continue_last(messages: Sequence[dict[str, Any]], fields: Mapping[str, Any]) -> None:
    """Mark the message that `continue_final_message` means. Raises InvalidRequestError."""
    if not fields.get("continue_final_message"):
        return
    last = messages[-1]
    if fields.get("add_generation_prompt"):
        wrong = "and 'add_generation_prompt' are both true, and a message that goes on has no next"
    elif last["role"] != "assistant" or last.get("tool_calls"):
        wrong = "is true, but the last message is no text of the role 'assistant'"
    else:
        last["prefix"] = True
        return
    raise InvalidRequestError(
        f"'continue_final_message' {wrong}; leave it out",
        param="continue_final_message",
        code="invalid_value",
    )


def parse_completion(body: Json) -> CompletionRequest:
    """A completion request. Raises InvalidRequestError or UnsupportedError naming the field."""
    fields = COMPLETION.check(body, "")
    prompt = fields["prompt"]
    prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    sampling, delivery = parse_sampling(COMPLETION, fields), _delivery(fields)
    echo = fields.get("echo", False)
    if echo and sampling.get("logprobs") is not None:
        if delivery.made > 1:
            raise InvalidRequestError(
                "'echo' with 'logprobs' tells a prompt's, once: 'n' and 'best_of' must be 1",
                param="n",
                code="invalid_value",
            )
        sampling = {**sampling, "prompt_logprobs": True}
    suffix = fields.get("suffix", "")
    if suffix and (echo or not all(isinstance(prompt, str) for prompt in prompts)):
        raise InvalidRequestError(
            "'suffix' goes with prompts that are texts, and without 'echo'",
            param="echo" if echo else "prompt",
            code="invalid_value",
        )
    return CompletionRequest(prompts, sampling, delivery, structure_of(fields), echo, suffix)


def _top_logprobs(fields: dict[str, Any]) -> SamplingOptions:
    """Merge a chat's two fields into the one of a completion."""
    if not (top := fields.get("top_logprobs")):
        return {}
    if not fields.get("logprobs"):
        raise InvalidRequestError(
            "'top_logprobs' is only allowed with 'logprobs': true",
            param="top_logprobs",
            code="invalid_value",
        )
    return {"logprobs": top}


def _counts(fields: dict[str, Any]) -> tuple[int, int]:
    """The number of answers sent, and generated, for each prompt."""
    n = fields.get("n", 1)
    made = fields.get("best_of", n)
    if made < n:
        wrong = f"'best_of' is {made} and 'n' is {n}, but the best n are sent of best_of answers"
    elif made > n and fields.get("stream"):
        wrong = "'best_of' above 'n' is known when all answers are complete, and cannot be streamed"
    else:
        return n, made
    raise InvalidRequestError(
        f"{wrong}; leave 'best_of' out", param="best_of", code="invalid_value"
    )


def _delivery(fields: dict[str, Any]) -> Delivery:
    stream = fields.get("stream", False)
    options = fields.get("stream_options")
    if options is not None and not stream:
        raise InvalidRequestError(
            "'stream_options' is only allowed with 'stream': true",
            param="stream_options",
            code="invalid_value",
        )
    return Delivery(
        fields.get("model"),
        stream,
        (options or {}).get("include_usage", False),
        *_counts(fields),
        fields.get("cache_salt") or "",
        fields.get("priority", 0),
        fields.get("timeout"),
    )
