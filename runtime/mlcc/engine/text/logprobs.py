"""Log-probabilities of the tokens that an answer's text is made of, told together with that text.

Text lags behind tokens: a token is told once its text is out, so never one that stop strings cut
off, and none that has no text (`token_texts.py`). Which texts go out when is `answer.py`'s.

What one token stands for, by itself: its text, and its bytes where it is a part of a character.

For log-probabilities, which tell of tokens that were never said. Not how an answer is written
(`detokenize.py`): there tokens have their context. Work is done once for each token that is asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mlcc.engine.text.detokenizer import BROKEN, Tokenizer

_MAX_PROBED = 4096
"""Tokens among which one is looked for that the others are decoded behind."""


class TokenText(NamedTuple):
    """Of one token."""

    text: str
    """With U+FFFD for bytes that are no character by themselves; "" = it is not for users: it
    steers the model."""
    bytes: bytes | None
    """None = not known: it is a part of a character, and the tokenizer does not say which."""


class TokenTexts:
    """The tokens of one tokenizer.

    A tokenizer may have a method `piece(id) -> str | None`, the token as its vocabulary writes it:
    where a token is a part of a character, its bytes are read from that.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._decode = tokenizer.decode
        self._piece: Callable[[int], str | None] = getattr(tokenizer, "piece", lambda token: None)
        self._vocab_size = vocab_size
        self._known: dict[int, TokenText] = {}

    def of(self, token: int) -> TokenText:
        """What it stands for."""
        if (known := self._known.get(token)) is None:
            known = self._known[token] = self._read(token)
        return known

    def written(self, token: int) -> str:
        """As its vocabulary writes it, "" = that is not known: for tokens without a text."""
        return self._piece(token) or ""

    def _read(self, token: int) -> TokenText:
        front, before = self._front
        text = self._decode([*front, token])
        # Behind another token, because some tokenizers drop the first space of a text.
        text = text[len(before) :] if text.startswith(before) else self._decode([token])
        if BROKEN not in text:
            return TokenText(text, text.encode())
        known = bytes_of(self._piece(token) or "")
        fits = known is not None and known.decode(errors="replace") == text
        return TokenText(text, known if fits else None)

    @cached_property
    def _front(self) -> tuple[list[int], str]:
        """A plain word and its text: no part of a character, and nothing that joins one."""
        for token in range(min(self._vocab_size, _MAX_PROBED)):
            text = self._decode([token])
            word = text.strip()
            if word.isascii() and word.isalpha() and len(word) > 1:
                return [token], text
        return [], ""


def breaks_of(texts: TokenTexts | None, breakers: Sequence[str], token: int) -> bool:
    """Whether the text of a token has one of the breakers in it."""
    if not breakers or texts is None:
        return False
    text = texts.of(token).text
    return any(breaker in text for breaker in breakers)


def bytes_of(piece: str) -> bytes | None:
    """The bytes that a vocabulary's way to write them stands for: `<0xE2>` (byte fallback of
    SentencePiece), or GPT-2's letters for bytes; None = it is neither."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    try:
        return bytes(map(_BYTES.__getitem__, piece)) if piece else None
    except KeyError:
        return None


def _letters() -> dict[str, int]:
    """GPT-2's letter for each byte (Radford et al., 2019): itself where it is printable."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in shown)
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _letters()


class Candidate(NamedTuple):
    """A token that was said, or might have been."""

    token: int
    text: str
    bytes: bytes | None
    """Of the text, or those that are a part of a character; None = they are not known."""
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of an answer."""

    chosen: Candidate
    top: tuple[Candidate, ...]
    """The likeliest, of those that have a text: the likeliest first, as many as were wanted."""
    offset: int
    """Characters of the answer before it. Tokens of one character have the same."""


@dataclass(frozen=True, slots=True)
class HeldLogprob:
    """A token whose text is not out yet, as it is told to another engine."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class OutputLogprobs:
    """Of one answer that is being made."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._incomplete: list[tuple[Candidate, tuple[Candidate, ...]]] = []
        """Tokens whose text is not known yet: a character is not whole."""
        self._held: deque[tuple[TokenLogprob, int]] = deque()
        """Tokens whose text is known and not out yet, each with where it ends."""
        self._known = self._emitted = 0
        """Characters of the answer that are known, and that are out."""

    def push(self, token: int, logprob: float, top: Sequence[tuple[int, float]]) -> None:
        """A token was said; `advance` or `cut` follows, with what it brought."""
        if self._texts.of(token).text:
            self._incomplete.append(self._pair(token, logprob, top))

    def advance(self, text: str, held: int) -> Sequence[TokenLogprob]:
        """More of the answer is out, and so many characters behind it are known; returns the tokens
        that are out with it."""
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

    def cut(self, text: str) -> Sequence[TokenLogprob]:
        """The last of the answer, before a stop string: tokens that reach beyond are not told."""
        self._incomplete.clear()
        return self.advance(text, 0)

    @property
    def held(self) -> list[HeldLogprob]:
        """What is not told yet, in order."""
        tokens = ((token.chosen, token.top) for token, _ in self._held)
        return [
            HeldLogprob(chosen.token, chosen.logprob, tuple((c.token, c.logprob) for c in top))
            for chosen, top in (*tokens, *self._incomplete)
        ]

    def restore(self, held: Sequence[HeldLogprob]) -> None:
        """Give the values of `held` to the same tokens, which were pushed again without. Raises
        ValueError if they are others."""
        if [each.token for each in held] != [each.token for each in self.held]:
            raise ValueError("log-probabilities of other tokens")
        pairs = [self._pair(each.token, each.logprob, each.top) for each in held]
        for i, (old, end) in enumerate(self._held):
            self._held[i] = TokenLogprob(*pairs[i], old.offset), end
        self._incomplete = pairs[len(self._held) :]

    def _pair(
        self, token: int, logprob: float, top: Sequence[tuple[int, float]]
    ) -> tuple[Candidate, tuple[Candidate, ...]]:
        pairs = ((t, self._texts.of(t), p) for t, p in top)
        others = tuple(_candidate(t, text, p) for t, text, p in pairs if text.text)
        return _candidate(token, self._texts.of(token), logprob), others


class PromptLogprobs:
    """Of the tokens of one prompt, each with the logits behind those before it."""

    def __init__(self, texts: TokenTexts, prompt: Sequence[int]) -> None:
        self._texts, self._prompt = texts, prompt
        self._found: dict[int, tuple[float, Sequence[tuple[int, float]]]] = {}

    def set(self, index: int, logprob: float, top: Sequence[tuple[int, float]]) -> None:
        """Of one token; again where it was computed again."""
        self._found[index] = logprob, top

    def all(self) -> list[TokenLogprob]:
        """Of all, control tokens too."""
        tokens, offset = [], 0
        for index, token in enumerate(self._prompt):
            logprob, top = self._found.get(index, (0.0, ()))
            chosen = self._candidate(token, logprob)
            tokens.append(
                TokenLogprob(chosen, tuple(self._candidate(*pair) for pair in top), offset)
            )
            offset += len(chosen.text)
        return tokens

    def _candidate(self, token: int, logprob: float) -> Candidate:
        found = self._texts.of(token)
        if found.text:
            return _candidate(token, found, logprob)
        written = self._texts.written(token)
        return Candidate(token, written, written.encode(), logprob)


def _candidate(token: int, found: TokenText, logprob: float) -> Candidate:
    return Candidate(token, found.text, found.bytes, logprob)
