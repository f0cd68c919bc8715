"""Forbids repeated n-grams: no run of `size` tokens occurs twice in prompt and output (Paulus et
al., 2018; transformers' `no_repeat_ngram_size`).

The tokens that followed each run of size - 1 tokens are kept, so that a token costs one look-up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


class NoRepeatNgram:
    """State of one request. size: at least 1, which forbids every token of prompt and output."""

    def __init__(self, size: int, prompt: Sequence[int]) -> None:
        self._before = size - 1
        self._last: tuple[int, ...] = ()
        """The last size - 1 tokens, or as many as there are."""
        self._followers: dict[tuple[int, ...], dict[int, None]] = {}
        for token in prompt:
            self.push(token)

    def push(self, token: int) -> None:
        """Append a token."""
        if len(self._last) == self._before:
            self._followers.setdefault(self._last, {})[token] = None
        self._last = (*self._last, token)[-self._before :] if self._before else ()

    def banned(self) -> Collection[int]:
        """Tokens that would complete an n-gram a second time."""
        return self._followers.get(self._last, ())
