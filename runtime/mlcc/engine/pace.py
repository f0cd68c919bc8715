"""How much of prompts a step computes while others decode, so that nobody who reads an answer waits
for a stranger's prompt (stall-free batching: Sarathi-Serve, Agrawal et al., 2024).

It learns from how long steps took, which whoever drives the engine measured: what a step takes that
only decodes, and what each token of a prompt adds. A step with both is to take SLOWER times the
first. Without measured times, and where nobody decodes, prompts take all that a step holds.
"""

from __future__ import annotations

from collections import deque

SLOWER = 1.7
"""The longest of steps are to stay under twice the others: what is left is for what varies."""
LEAST = 16
"""Tokens of prompts in any step, or who decodes would starve who waits."""
BREATH = 16
"""After so many steps with prompts in a row comes one without: what decoding takes changes with who
decodes."""
_NEW = 0.25
"""Weight of what was measured last."""


class Pace:
    """Books of the steps in flight, and what they cost. Times are in any unit."""

    def __init__(self) -> None:
        self._flying: deque[tuple[int, int]] = deque()
        """(decoding sequences, tokens of prompts) of each step planned and not committed."""
        self._decode: float | None = None
        self._token: float | None = None
        self._mixed = 0
        """Steps with both, in a row, up to the one planned last."""

    def prompt_tokens(self, decodes: int, most: int) -> int:
        """How many of `most` the next step may compute beside so many decoding sequences."""
        if not decodes or (self._decode is None and self._token is None):
            return most
        if self._mixed >= BREATH:
            return 0
        if self._decode is None or self._token is None:
            return most
        return min(most, max(LEAST, int((SLOWER - 1) * self._decode / self._token)))

    def planned(self, decodes: int, prompt_tokens: int) -> None:
        """A step goes to the device."""
        self._mixed = self._mixed + 1 if decodes and prompt_tokens else 0
        self._flying.append((decodes, prompt_tokens))

    def took(self, seconds: float | None) -> None:
        """The oldest step in flight is done. None = nobody measured."""
        decodes, prompt_tokens = self._flying.popleft()
        if seconds is None or seconds <= 0:
            return
        if not prompt_tokens:
            self._decode = _mean(self._decode, seconds)
        elif decodes and self._decode is not None:
            more = max(seconds - self._decode, 0.01 * seconds)
            self._token = _mean(self._token, more / prompt_tokens)
        elif self._token is None:  # better than nothing: in many at once a token takes less
            self._token = seconds / prompt_tokens

    def forget(self) -> None:
        """No step is in flight any more."""
        self._flying.clear()


def _mean(old: float | None, new: float) -> float:
    return new if old is None else old + _NEW * (new - old)
