"""Requests of the OpenAI surface as dataclasses, parsed from plain JSON objects.

Not here: which fields exist (`fields.py`), and defaults that belong to a model (`sampling.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.api.fields import CHAT, COMPLETION
from mlcc.api.types import Json
from mlcc.errors import InvalidRequestError, UnsupportedError


@dataclass(frozen=True)
class SamplingFields:
    """What a request says about sampling; None = the model's default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    ignore_eos: bool = False


@dataclass(frozen=True)
class Delivery:
    """Which model is meant and how the answer is to be sent."""

    model: str | None = None
    stream: bool = False
    include_usage: bool = False


@dataclass(frozen=True)
class ChatRequest:
    """POST /v1/chat/completions."""

    messages: tuple[dict[str, str], ...]
    """role, content and perhaps name: what a chat template reads."""
    sampling: SamplingFields
    delivery: Delivery


@dataclass(frozen=True)
class CompletionRequest:
    """POST /v1/completions: one answer per prompt, each text or token ids."""

    prompts: tuple[str | list[int], ...]
    sampling: SamplingFields
    delivery: Delivery


def parse_chat(body: Json) -> ChatRequest:
    """A chat request. Raises InvalidRequestError or UnsupportedError naming the field."""
    fields = CHAT.check(body, "")
    messages = tuple(
        _message(message, f"messages[{i}]") for i, message in enumerate(fields["messages"])
    )
    return ChatRequest(messages, _sampling(fields), _delivery(fields))


def parse_completion(body: Json) -> CompletionRequest:
    """A completion request. Raises InvalidRequestError or UnsupportedError naming the field."""
    fields = COMPLETION.check(body, "")
    prompt = fields["prompt"]
    prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    return CompletionRequest(prompts, _sampling(fields), _delivery(fields))


def _message(fields: dict[str, Any], where: str) -> dict[str, str]:
    """One message as templates want it: text content; 'developer' is the newer name of 'system'."""
    if fields["role"] == "tool":
        raise UnsupportedError(
            f"'{where}.role' is 'tool', and tools are not built yet; send system, user and "
            "assistant messages",
            param=f"{where}.role",
            code="unsupported_parameter",
        )
    content = fields["content"]
    role = "system" if fields["role"] == "developer" else fields["role"]
    text = content if isinstance(content, str) else "".join(content)
    return {**fields, "role": role, "content": text}


def _sampling(fields: dict[str, Any]) -> SamplingFields:
    stop = fields.get("stop", ())
    return SamplingFields(
        temperature=fields.get("temperature"),
        top_p=fields.get("top_p"),
        top_k=None if fields.get("top_k") is None else max(0, fields["top_k"]),
        min_p=fields.get("min_p"),
        seed=fields.get("seed"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        max_tokens=_max_tokens(fields),
        ignore_eos=fields.get("ignore_eos", False),
    )


def _max_tokens(fields: dict[str, Any]) -> int | None:
    """`max_completion_tokens` is the newer name of `max_tokens`; two different wishes are none."""
    new, old = fields.get("max_completion_tokens"), fields.get("max_tokens")
    if new is not None and old is not None and new != old:
        raise InvalidRequestError(
            f"'max_tokens' is {old} and 'max_completion_tokens' is {new}; send one of them",
            param="max_tokens",
            code="invalid_value",
        )
    return new if new is not None else old


def _delivery(fields: dict[str, Any]) -> Delivery:
    stream = fields.get("stream", False)
    options = fields.get("stream_options")
    if options is not None and not stream:
        raise InvalidRequestError(
            "'stream_options' is only allowed with 'stream': true",
            param="stream_options",
            code="invalid_value",
        )
    return Delivery(fields.get("model"), stream, (options or {}).get("include_usage", False))
