"""Token ids to text, a token at a time, never half a character.

Decoding each token alone is wrong (a character may span tokens, a leading space may be dropped) and
decoding everything each time is quadratic. Method: the two offsets of text-generation-inference and
vLLM. Decode a short window of tokens with and without the new ones; the difference is the new text.
Not a tokenizer: that is behind the `Tokenizer` port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

_CONTEXT = 5
"""Tokens of the prompt that give the first token of the answer its context."""
_HOLD = 8
"""Tokens that may wait for the rest of a character; the longest has 4 bytes."""
BROKEN = "\ufffd"
"""What bytes that are no character are decoded to."""


class Tokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of these tokens, special ones skipped, broken UTF-8 as U+FFFD."""
        ...


class Detokenizer:
    """The text that follows a prompt. Work per token is bounded by the window's length.

    shown: special tokens that are not skipped, and how they are written.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int] = (),
        shown: Mapping[int, str] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._ids = list(prompt[-_CONTEXT:])
        """The window: `_read` tokens whose text is out, then those whose text is not."""
        self._read = len(self._ids)
        self._text = self._decode(self._ids)
        """Text of the first `_read` tokens."""

    def push(self, token: int) -> str:
        """Add a token; returns the text that became certain, often ""."""
        if (written := self._shown.get(token)) is not None:
            return self.flush() + written  # what follows has the context of what was before
        self._ids.append(token)
        text = self._decode(self._ids)
        waiting = len(self._ids) - self._read
        if text == self._text:
            if waiting > _HOLD:
                self._ids.pop()  # a run of tokens without text must not grow the window
            return ""
        if text.endswith(BROKEN):
            return self._hold(text, waiting)
        return self._advance(len(self._ids), text)

    def flush(self) -> str:
        """The rest, broken or not, once no more tokens will come."""
        return self._advance(len(self._ids)) if len(self._ids) > self._read else ""

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids) if ids else ""

    def _advance(self, cut: int, text: str | None = None) -> str:
        """Give out the text of the window's tokens before `cut` and move the window."""
        text = self._decode(self._ids[:cut]) if text is None else text
        before = self._text
        while before.endswith(BROKEN) and not text.startswith(before):
            before = before[:-1]  # the prompt ended within a character, which is whole now
        new = text[len(before) :]
        if cut > self._read:
            del self._ids[: self._read]
            self._read = cut - self._read
            self._text = self._decode(self._ids[: self._read])
        return new

    def _hold(self, text: str, waiting: int) -> str:
        """Wait for the rest of a character, unless there have been too many broken bytes."""
        if not self._decode(self._ids[-1:]):
            self._ids.pop()  # a special token amid the bytes of a character
            return ""
        return self._advance(self._clean_cut(text)) if waiting >= _HOLD else ""

    def _clean_cut(self, text: str) -> int:
        """The last place between characters where the waiting tokens can be cut.

        At most 3 tokens belong to a character that is not complete.
        """
        count = len(self._ids)
        for cut in range(count - 1, max(self._read, count - 5), -1):
            if self._decode(self._ids[:cut]) + self._decode(self._ids[cut:]) == text:
                return cut
        return count
