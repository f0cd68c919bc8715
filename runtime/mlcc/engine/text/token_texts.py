"""What one token stands for, by itself: its text, and its bytes where it is a part of a character.

For log-probabilities, which tell of tokens that were never said. Not how an answer is written
(`detokenize.py`): there tokens have their context. Work is done once for each token that is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from mlcc.engine.text.detokenizer import BROKEN, Tokenizer

_LOOKED_AT = 4096
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
        made = bytes_of(self._piece(token) or "")
        fits = made is not None and made.decode(errors="replace") == text
        return TokenText(text, made if fits else None)

    @cached_property
    def _front(self) -> tuple[list[int], str]:
        """A plain word and its text: no part of a character, and nothing that joins one."""
        for token in range(min(self._vocab_size, _LOOKED_AT)):
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
