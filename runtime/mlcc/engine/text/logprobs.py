"""Log-probabilities of output tokens, reported together with their text.

Text lags behind tokens: a token is reported once its text is out, a control token once the text
before it is. Tokens cut off by a stop string are never reported. `detokenizer.py` decides
which text goes out when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mlcc.engine.text.tokenizer import TokenTexts


class Candidate(NamedTuple):
    """A token that was sampled, or could have been."""

    token: int
    text: str
    """Of a control token: as the vocabulary writes it."""
    bytes: bytes | None
    """Bytes of the text, or of a part of a character; None = unknown."""
    logprob: float
    control: bool = False
    """Whether the token adds nothing to the text of an output: `<|im_end|>`."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of an output."""

    chosen: Candidate
    top: tuple[Candidate, ...]
    """The likeliest tokens, the likeliest first, as many as requested."""
    offset: int
    """Characters of the output before it. Tokens of one character have the same offset."""


@dataclass(frozen=True, slots=True)
class HeldLogprob:
    """A token whose text is not out yet, in an exported request."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class OutputLogprobs:
    """Log-probabilities of one output."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._incomplete: list[tuple[Candidate, tuple[Candidate, ...]]] = []
        """Tokens whose text is unknown: a character is not complete."""
        self._held: deque[tuple[TokenLogprob, int]] = deque()
        """Tokens whose text is known and not out yet, each with its end offset."""
        self._known = self._emitted = 0
        """Characters of the output that are known, and that are out."""

    def push(self, token: int, logprob: float, top: Sequence[tuple[int, float]]) -> None:
        """A token was sampled; `advance` or `cut` follows."""
        pair = self._pair(token, logprob, top)
        if pair[0].control and not self._incomplete:
            self._held.append((TokenLogprob(*pair, self._known), self._known))
        else:
            self._incomplete.append(pair)

    def advance(self, text: str, held: int) -> Sequence[TokenLogprob]:
        """`text` is out, and `held` characters after it are known. Returns the tokens that are out
        with it."""
        self._emitted += len(text)
        known = self._emitted + held
        if known > self._known:
            tokens = [TokenLogprob(*pair, self._known) for pair in self._incomplete]
            self._held.extend((token, known) for token in tokens)
            self._incomplete.clear()
            self._known = known
        ready = []
        while self._held and self._held[0][1] <= self._emitted:
            ready.append(self._held.popleft()[0])
        return ready

    def end(self, text: str) -> Sequence[TokenLogprob]:
        """The last text of the output, which is whole. Returns all tokens that are left."""
        ready = self.advance(text, 0)
        rest = [TokenLogprob(*pair, self._known) for pair in self._incomplete]
        self._incomplete.clear()
        return [*ready, *rest]

    def cut(self, text: str) -> Sequence[TokenLogprob]:
        """The last text of the output, before a stop string. Tokens that reach beyond it are
        dropped."""
        self._incomplete.clear()
        return self.advance(text, 0)

    @property
    def held(self) -> list[HeldLogprob]:
        """Tokens not reported yet, in order."""
        tokens = ((token.chosen, token.top) for token, _ in self._held)
        return [
            HeldLogprob(chosen.token, chosen.logprob, tuple((c.token, c.logprob) for c in top))
            for chosen, top in (*tokens, *self._incomplete)
        ]

    def restore(self, held: Sequence[HeldLogprob]) -> None:
        """Restore the values of `held` for the same tokens, which were pushed again without them.
        Raises ValueError if the tokens differ."""
        if [each.token for each in held] != [each.token for each in self.held]:
            raise ValueError("log-probabilities of other tokens")
        pairs = [self._pair(each.token, each.logprob, each.top) for each in held]
        for i, (old, end) in enumerate(self._held):
            self._held[i] = TokenLogprob(*pairs[i], old.offset), end
        self._incomplete = pairs[len(self._held) :]

    def _pair(
        self, token: int, logprob: float, top: Sequence[tuple[int, float]]
    ) -> tuple[Candidate, tuple[Candidate, ...]]:
        others = tuple(_candidate(self._texts, *pair) for pair in top)
        return _candidate(self._texts, token, logprob), others


class PromptLogprobs:
    """Log-probabilities of one prompt's tokens."""

    def __init__(self, texts: TokenTexts, prompt: Sequence[int]) -> None:
        self._texts, self._prompt = texts, prompt
        self._found: dict[int, tuple[float, Sequence[tuple[int, float]]]] = {}

    def set(self, index: int, logprob: float, top: Sequence[tuple[int, float]]) -> None:
        """Set those of one token, again after recomputation."""
        self._found[index] = logprob, top

    def all(self) -> list[TokenLogprob]:
        """Those of all tokens, control tokens included."""
        tokens, offset = [], 0
        for index, token in enumerate(self._prompt):
            logprob, top = self._found.get(index, (0.0, ()))
            chosen = _candidate(self._texts, token, logprob)
            others = tuple(_candidate(self._texts, *pair) for pair in top)
            tokens.append(TokenLogprob(chosen, others, offset))
            offset += len(chosen.text)
        return tokens


def _candidate(texts: TokenTexts, token: int, logprob: float) -> Candidate:
    found = texts.of(token)
    if found.text:
        return Candidate(token, found.text, found.bytes, logprob)
    written = texts.written(token)
    return Candidate(token, written, written.encode(), logprob, control=True)
