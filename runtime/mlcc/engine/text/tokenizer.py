"""The port to a tokenizer, and the text and bytes of single tokens (`TokenTexts`).

Output text is made by `detokenizer.py`, where tokens have their context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

BROKEN = "\ufffd"
"""Replacement character for bytes that are no character."""
_MAX_PROBED = 4096
"""Tokens searched for one after which the others are decoded."""


class Tokenizer(Protocol):
    """Port to a tokenizer."""

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of these tokens, special ones skipped, broken UTF-8 as U+FFFD."""
        ...


class TokenText(NamedTuple):
    """Text and bytes of one token."""

    text: str
    """With U+FFFD for bytes that are no character by themselves; "" = a control token without
    text."""
    bytes: bytes | None
    """None = unknown: the token is part of a character, and the tokenizer does not say which."""


class TokenTexts:
    """Texts of one tokenizer's tokens, computed once each.

    A tokenizer may have a method `piece(id) -> str | None`, the token as its vocabulary writes it:
    the bytes of a token that is part of a character are read from that.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._decode = tokenizer.decode
        self._piece: Callable[[int], str | None] = getattr(tokenizer, "piece", lambda token: None)
        self._vocab_size = vocab_size
        self._known: dict[int, TokenText] = {}

    def of(self, token: int) -> TokenText:
        """Text of a token."""
        if (known := self._known.get(token)) is None:
            known = self._known[token] = self._read(token)
        return known

    def written(self, token: int) -> str:
        """The token as its vocabulary writes it, "" = unknown: for tokens without text."""
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
        """A plain word and its text, which joins neither a character nor another token."""
        for token in range(min(self._vocab_size, _MAX_PROBED)):
            text = self._decode([token])
            word = text.strip()
            if word.isascii() and word.isalpha() and len(word) > 1:
                return [token], text
        return [], ""


def breaks_of(texts: TokenTexts | None, breakers: Sequence[str], token: int) -> bool:
    """Whether the text of a token contains one of the breakers."""
    if not breakers or texts is None:
        return False
    text = texts.of(token).text
    return any(breaker in text for breaker in breakers)


def bytes_of(piece: str) -> bytes | None:
    """The bytes of a vocabulary entry: `<0xE2>` (byte fallback of SentencePiece), or GPT-2's
    letters for bytes; None = neither."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    try:
        return bytes(map(GPT2_BYTES.__getitem__, piece)) if piece else None
    except KeyError:
        return None


def _letters() -> dict[str, int]:
    """GPT-2's letter for each byte (Radford et al., 2019): itself where it is printable."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in shown)
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(others)}


GPT2_BYTES = _letters()
"""The byte of each of GPT-2's letters."""
