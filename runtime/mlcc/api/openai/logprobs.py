"""Log-probabilities in OpenAI's two shapes, a chat's and a completion's."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.api.openai.shapes import ChatLogprobs, ChatToken, ChatTokenLogprob, CompletionLogprobs
from mlcc.engine.text.logprobs import Candidate, TokenLogprob

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


def completion_logprobs(
    tokens: Sequence[TokenLogprob], prompt: Sequence[TokenLogprob] = (), echo: str = ""
) -> CompletionLogprobs:
    """Of the tokens of a completion, or of a piece of it. prompt: the tokens before it that are
    told as well; echo: the text before it."""
    told = [*prompt, *tokens]
    first = [None] if prompt else []
    rest = told[len(first) :]
    return {
        "tokens": [_written(token.chosen) for token in told],
        "token_logprobs": [*first, *(max(token.chosen.logprob, LEAST) for token in rest)],
        "top_logprobs": [*first, *map(_by_text, rest)],
        "text_offset": [
            *(token.offset for token in prompt),
            *(len(echo) + token.offset for token in tokens),
        ],
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
