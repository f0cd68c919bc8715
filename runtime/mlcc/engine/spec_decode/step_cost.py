"""What one more token adds to the time of a step that decodes, as steps were measured.

A straight line through the latest steps, by least squares with weights that fade: a part that every
step takes (the weights are read) and a part for each token. Until steps of several sizes were seen,
the line is the one that is assumed. Times are in any unit.
"""

from __future__ import annotations

ASSUMED = 0.12
"""Of a step of one token, what each further token adds until it is known."""
_FADES = 0.98
_DOUBT = 2.0
"""Measured steps that the assumption weighs as much as."""
_LEAST = 0.01
"""Of a step, that a token adds in any case: what is measured is noisy."""


class StepCost:
    """A line through what steps took."""

    def __init__(self) -> None:
        self._weight = self._tokens = self._squares = self._times = self._products = 0.0

    def took(self, tokens: int, seconds: float | None) -> None:
        """A step of so many tokens, none of a prompt. None = nobody measured."""
        if seconds is None or seconds <= 0:
            return
        sums = self._weight, self._tokens, self._squares, self._times, self._products
        new = 1.0, tokens, tokens * tokens, seconds, tokens * seconds
        faded = [old * _FADES + more for old, more in zip(sums, new, strict=True)]
        self._weight, self._tokens, self._squares, self._times, self._products = faded

    @property
    def time(self) -> float:
        """Of the steps that were measured, on average; 0 = none was."""
        return self._times / self._weight if self._weight else 0.0

    def share(self, tokens: int) -> float:
        """What one token more adds to a step of so many, of what the step takes: 0.01 to 1."""
        if not self._weight:
            return ASSUMED / (1 - ASSUMED + ASSUMED * tokens)
        mean, time = self._tokens / self._weight, self._times / self._weight
        spread = self._squares / self._weight - mean * mean
        slope = self._products / self._weight - mean * time
        assumed = time * ASSUMED / (1 - ASSUMED + ASSUMED * mean)
        doubt = _DOUBT / self._weight
        slope = (slope + assumed * doubt) / (spread + doubt)
        slope = min(max(slope, _LEAST * time), time / mean)
        whole = time + slope * (tokens - mean)
        return min(1.0, max(_LEAST, slope / whole)) if whole > 0 else 1.0
