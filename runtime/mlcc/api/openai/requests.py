"""Requests of the OpenAI API as dataclasses, parsed from plain JSON objects.

Not here: the fields (`mlcc.api.schema.chat_fields`) and sampling (`sampling_params.py`).
"""

from __future__ import annotations

from typing import Any

from mlcc.api.openai.sampling_params import SamplingOptions, parse_sampling
from mlcc.api.schema.chat_fields import CHAT, COMPLETION, prediction_of
from mlcc.api.schema.message_fields import message_of
from mlcc.api.schema.reasoning_fields import DEFAULT_REASONING, ReasoningOptions, reasoning_options
from mlcc.api.schema.structured_output import structure_of
from mlcc.api.schema.tool_fields import NO_TOOLS, ToolUse, tool_use
from mlcc.api.schema.types import Json
from mlcc.engine.sampling.grammar import Structure
from mlcc.errors import InvalidRequestError
from mlcc.util.fast_dataclass import fast_dataclass


@fast_dataclass(frozen=True)
class Delivery:
    """Which model is meant, how many answers are to be sent, how and by when, and who is served
    first."""

    model: str | None = None
    stream: bool = False
    include_usage: bool = False
    n: int = 1
    """Answers to each prompt that are sent: the likeliest of those made."""
    made: int = 1
    """Answers to each prompt that are made."""
    cache_salt: str = ""
    priority: int = 0
    timeout: float | None = None
    """In seconds; None = as long as the place that answers allows."""


@fast_dataclass(frozen=True)
class ChatRequest:
    """POST /v1/chat/completions."""

    messages: tuple[dict[str, Any], ...]
    """What a chat template reads: role, content, calls of tools ..."""
    sampling: SamplingOptions
    delivery: Delivery
    structure: Structure | None = None
    """What the answer must be."""
    use: ToolUse = NO_TOOLS
    reasoning: ReasoningOptions = DEFAULT_REASONING
    prediction: str = ""
    """What much of the answer will be."""


@fast_dataclass(frozen=True)
class CompletionRequest:
    """POST /v1/completions: one answer per prompt, each text or token ids."""

    prompts: tuple[str | list[int], ...]
    sampling: SamplingOptions
    delivery: Delivery
    structure: Structure | None = None
    """What the answer must be."""
    echo: bool = False
    """Send the prompt before the answer."""
    suffix: str = ""
    """What comes behind the gap that the answer fills; "" = it has no end."""


def parse_chat(body: Json) -> ChatRequest:
    """A chat request. Raises InvalidRequestError or UnsupportedError naming the field."""
    fields = CHAT.check(body, "")
    messages = tuple(
        message_of(message, f"messages[{i}]") for i, message in enumerate(fields["messages"])
    )
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
    return ChatRequest(messages, sampling, _delivery(fields), structure, use, reasoning, prediction)


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
    """A chat says in two fields what a completion says in one."""
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
    """How many answers to each prompt are sent, and how many are made."""
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
