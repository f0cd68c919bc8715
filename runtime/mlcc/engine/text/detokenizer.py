"""Token ids to text, a token at a time, never half a character.

Decoding each token alone is wrong (a character may span tokens, a leading space may be dropped) and
decoding everything each time is quadratic. Method: the two offsets of text-generation-inference and
vLLM. Decode a short window of tokens with and without the new ones; the difference is the new text.
Not a tokenizer: that is behind the `Tokenizer` port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

_CONTEXT = 5
"""Tokens of the prompt that give the first output token its context."""
_HOLD = 8
"""Tokens that may wait for the rest of a character; the longest has 4 bytes."""
_MOST_KNOWN = 1 << 13
"""Entries of the cache; a few megabytes."""
BROKEN = "\ufffd"
"""Replacement character for bytes that are no character."""


Window = tuple[int, ...]


class Piece(NamedTuple):
    """Effect of a token after a window whose text is out."""

    new: str
    """The text that it adds."""
    ids: Window
    """The window afterwards, whose text is out too."""
    text: str


class Tokenizer(Protocol):
    """Port to a tokenizer."""

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of these tokens, special ones skipped, broken UTF-8 as U+FFFD."""
        ...


class Detokenizer:
    """The text after a prompt. Work per token is bounded by the window's length.

    shown: special tokens that are not skipped, and their spelling. known: a cache shared by outputs
    of one tokenizer, which often repeat the same text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int] = (),
        shown: Mapping[int, str] | None = None,
        known: dict[Window, Piece] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._known = {} if known is None else known
        self._ids = tuple(prompt[-_CONTEXT:])
        """The window: `_read` tokens whose text is out, then those whose text is not."""
        self._read = len(self._ids)
        self._text = self._decode(self._ids)
        """Text of the first `_read` tokens."""

    def push(self, token: int) -> str:
        """Add a token. Returns the text that became certain, often ""."""
        if self._shown and (written := self._shown.get(token)) is not None:
            return self.flush() + written  # what follows has the context of what was before
        ids = self._ids = (*self._ids, token)
        waiting = len(ids) - self._read
        if waiting == 1 and (piece := self._known.get(ids)) is not None:
            new, self._ids, self._text = piece
            self._read = len(self._ids)
            return new
        text = self._decode(ids)
        if text == self._text:
            if waiting > _HOLD:
                self._ids = ids[:-1]  # a run of tokens without text must not grow the window
            return ""
        if text.endswith(BROKEN):
            return self._hold(text, waiting)
        new = self._advance(len(ids), text)
        if waiting == 1:
            self._remember(ids, new)
        return new

    def flush(self) -> str:
        """The rest, broken or not, once no more tokens will come."""
        waiting = len(self._ids) > self._read
        return self._advance(len(self._ids), self._decode(self._ids)) if waiting else ""

    def _decode(self, ids: Window) -> str:
        return self._tokenizer.decode(list(ids)) if ids else ""

    def _remember(self, ids: Window, new: str) -> None:
        """Cache the effect of the last of these tokens after the others, whose text was out."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[ids] = Piece(new, self._ids, self._text)

    def _advance(self, cut: int, text: str) -> str:
        """Emit the text of the window's tokens before `cut`, and move the window."""
        before = self._text
        while before.endswith(BROKEN) and not text.startswith(before):
            before = before[:-1]  # the prompt ended within a character, which is whole now
        if cut > self._read:
            self._ids = self._ids[self._read :]
            self._read = cut - self._read
            self._text = self._decode(self._ids[: self._read])
        return text[len(before) :]

    def _hold(self, text: str, waiting: int) -> str:
        """Wait for the rest of a character, unless there have been too many broken bytes."""
        if not self._decode(self._ids[-1:]):
            self._ids = self._ids[:-1]  # a special token amid the bytes of a character
            return ""
        if waiting < _HOLD:
            return ""
        cut = self._clean_cut(text)
        return self._advance(cut, self._decode(self._ids[:cut]))

    def _clean_cut(self, text: str) -> int:
        """The last place between characters where the waiting tokens can be cut.

        At most 3 tokens belong to a character that is not complete.
        """
        count = len(self._ids)
        for cut in range(count - 1, max(self._read, count - 5), -1):
            if self._decode(self._ids[:cut]) + self._decode(self._ids[cut:]) == text:
                return cut
        return count
