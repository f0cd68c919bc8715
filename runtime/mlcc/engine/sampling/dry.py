"""DRY ("don't repeat yourself", as in llama.cpp): penalizes tokens that would continue a
repetition.

If the last tokens occurred before, the token that followed them loses multiplier * base ** (length
- allowed_length); the longest match counts. A match does not extend over a sequence breaker, and a
breaker is never penalized.

The lengths of all matches that end with the last token are carried from token to token: a match
that continues is one longer. So a token costs as many steps as it has occurrences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST = 1e6
"""Largest penalty, which fits a float32."""
MOST_TOKENS = 512
"""Tokens penalized at once, those of the longest matches: a step bounds the number of biases."""


@dataclass(frozen=True, slots=True)
class DryParams:
    """Parameters with llama.cpp's names and defaults."""

    multiplier: float = 0.0
    """0 = off."""
    base: float = 1.75
    allowed_length: int = 2
    window: int = -1
    """Last tokens to search; -1 = all."""


class Dry:
    """DRY state of one request. breaks: whether a token contains a sequence breaker."""

    def __init__(
        self, params: DryParams, prompt: Sequence[int], breaks: Callable[[int], bool]
    ) -> None:
        self._params, self._breaks = params, breaks
        self._tokens: list[int] = []
        self._places: dict[int, list[int]] = {}
        """Positions of each token."""
        self._runs: dict[int, int] = {}
        """End position of each earlier match of the last tokens -> its length."""
        for token in prompt[-params.window :] if params.window > 0 else prompt:
            self._note(token)
        self._runs = self._all_runs()

    def push(self, token: int) -> None:
        """Append a token."""
        runs = self._runs
        self._runs = (
            {}
            if self._breaks(token)
            else {at: runs.get(at - 1, 0) + 1 for at in self._places.get(token, ())}
        )
        self._note(token)

    def penalties(self) -> dict[int, float]:
        """Penalty of each token now."""
        params, tokens = self._params, self._tokens
        first = max(0, len(tokens) - params.window) if params.window >= 0 else 0
        longest: dict[int, int] = {}
        for at, length in self._runs.items():
            length = min(length, at + 1 - first)
            token = tokens[at + 1]
            if length >= max(params.allowed_length, 1) and length > longest.get(token, 0):
                longest[token] = length
        if len(longest) > MOST_TOKENS:
            longest = dict(sorted(longest.items(), key=lambda run: -run[1])[:MOST_TOKENS])
        return {
            token: min(
                params.multiplier * _power(params.base, length - params.allowed_length), MOST
            )
            for token, length in longest.items()
            if not self._breaks(token)
        }

    def _note(self, token: int) -> None:
        self._places.setdefault(token, []).append(len(self._tokens))
        self._tokens.append(token)

    def _all_runs(self) -> dict[int, int]:
        """All matches from scratch, in one pass: Z-algorithm (Gusfield, 1997) on the reversed
        tokens."""
        back = self._tokens[::-1]
        count = len(back)
        reach = next((i for i, token in enumerate(back) if self._breaks(token)), count)
        lengths, left, right = [0] * count, 0, 0
        for i in range(1, count):
            if i < right:
                lengths[i] = min(right - i, lengths[i - left])
            while i + lengths[i] < count and back[lengths[i]] == back[i + lengths[i]]:
                lengths[i] += 1
            if i + lengths[i] > right:
                left, right = i, i + lengths[i]
        return {count - 1 - i: min(n, reach) for i, n in enumerate(lengths) if min(n, reach)}


def _power(base: float, exponent: int) -> float:
    """base ** exponent, or infinity on overflow."""
    try:
        return base**exponent
    except OverflowError:
        return float("inf")
