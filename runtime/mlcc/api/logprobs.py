"""Log-probabilities in OpenAI's two shapes, a chat's and a completion's."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.api.shapes import ChatLogprobs, ChatToken, ChatTokenLogprob, CompletionLogprobs
from mlcc.engine.logprobs import Candidate, TokenLogprob

LEAST = -9999.0
"""What OpenAI tells of less likely tokens, too: JSON has no infinity."""


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> ChatLogprobs:
    """Of the tokens of a chat's answer, or of a piece of it."""
    content: list[ChatTokenLogprob] = [
        {**_chat_token(token.chosen), "top_logprobs": [*map(_chat_token, token.top)]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _chat_token(token: Candidate) -> ChatToken:
    return {
        "token": token.text,
        "logprob": max(token.logprob, LEAST),
        "bytes": None if token.bytes is None else [*token.bytes],
    }


def completion_logprobs(tokens: Sequence[TokenLogprob]) -> CompletionLogprobs:
    """Of the tokens of a completion, or of a piece of it."""
    return {
        "tokens": [_written(token.chosen) for token in tokens],
        "token_logprobs": [max(token.chosen.logprob, LEAST) for token in tokens],
        "top_logprobs": [_by_text(token) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def _by_text(token: TokenLogprob) -> dict[str, float]:
    """The likeliest, and the chosen token if it is none of them; of equal texts the likeliest."""
    found: dict[str, float] = {}
    for candidate in (*token.top, token.chosen):
        found.setdefault(_written(candidate), max(candidate.logprob, LEAST))
    return found


def _written(token: Candidate) -> str:
    """A text; of a part of a character its bytes, as OpenAI writes them: `bytes:\\xe2\\x82`."""
    if token.bytes is None or token.text.encode() == token.bytes:
        return token.text
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.bytes)
