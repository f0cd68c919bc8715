"""Log-probabilities in the shapes of OpenAI's /v1/completions and /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.api.openai.shapes import ChatLogprobs, ChatToken, ChatTokenLogprob, CompletionLogprobs
from mlcc.engine.text.logprobs import Candidate, TokenLogprob

LEAST = -9999.0
"""OpenAI's value for less likely tokens: JSON has no infinity."""


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> ChatLogprobs:
    """Log-probabilities of a chat's answer, or of a piece of it; control tokens are left out: the
    entries are those of the content (OpenAI's API reference)."""
    content: list[ChatTokenLogprob] = [
        {
            **_chat_token(token.chosen),
            "top_logprobs": [_chat_token(other) for other in token.top if not other.control],
        }
        for token in without_control(tokens)
    ]
    return {"content": content, "refusal": None}


def without_control(tokens: Sequence[TokenLogprob]) -> list[TokenLogprob]:
    """Those of tokens that have a text."""
    return [token for token in tokens if not token.chosen.control]


def _chat_token(token: Candidate) -> ChatToken:
    return {
        "token": token.text,
        "logprob": max(token.logprob, LEAST),
        "bytes": None if token.bytes is None else [*token.bytes],
    }


def completion_logprobs(
    tokens: Sequence[TokenLogprob], prompt: Sequence[TokenLogprob] = (), echo: str = ""
) -> CompletionLogprobs:
    """Log-probabilities of a completion, or of a piece of it. prompt: the tokens before it that are
    reported as well; echo: the text before it."""
    reported = [*prompt, *tokens]
    first = [None] if prompt else []
    rest = reported[len(first) :]
    return {
        "tokens": [_written(token.chosen) for token in reported],
        "token_logprobs": [*first, *(max(token.chosen.logprob, LEAST) for token in rest)],
        "top_logprobs": [*first, *map(_by_text, rest)],
        "text_offset": [
            *(token.offset for token in prompt),
            *(len(echo) + token.offset for token in tokens),
        ],
    }


def _by_text(token: TokenLogprob) -> dict[str, float]:
    """The likeliest tokens and the chosen one by their texts; the likeliest of equal texts."""
    found: dict[str, float] = {}
    for candidate in (*token.top, token.chosen):
        found.setdefault(_written(candidate), max(candidate.logprob, LEAST))
    return found


def _written(token: Candidate) -> str:
    """A token's text; for a part of a character its bytes in OpenAI's form: `bytes:\\xe2\\x82`."""
    if token.bytes is None or token.text.encode() == token.bytes:
        return token.text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.bytes)
