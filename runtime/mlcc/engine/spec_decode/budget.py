"""What guessing may lose: a small share of the time that answers take, whatever is hoped of it.

How far ahead to guess is decided by chances and by what a token more costs (`guesses.py`). Both are
estimates, and text that is hard to foresee, or a device on which the second token of a step costs
as much as the first, make them wrong for long. So books are kept of what really happened: a step
with guesses is set against the time that its tokens take without any, as that was measured. What is
lost is paid from a balance that gains `SHARE` of all time; while it is spent, nobody guesses.

So answers take no more than 1 + SHARE of their time without guesses, and `START` steps. It knows no
tokens and no sequences.

What one more token adds to the time of a step that decodes, as steps were measured.

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


SHARE = 0.02
"""Of the time of steps, that guesses may lose."""
START = 2.0
"""Steps without guesses that may be lost before anything was earned."""
_MOST = 8.0
"""Such steps that the balance has at most: what was won long ago is not lost again in one go."""
REFRESH = 64
"""After so many steps comes one without guesses: what those are set against changes as texts get
longer."""
_NEW = 0.2
"""Weight of what was measured last."""
_HICCUP = 4.0
"""Times what was expected, at most: more than that is a hiccup's."""


class DraftBudget:
    """Of one engine. Times are in any unit; if nobody measures them, all may be guessed."""

    def __init__(self) -> None:
        self._measured = False
        self._balance = 0.0
        self._steps = 0
        self._plain: dict[int, float] = {}
        """What a step without guesses takes, by how many sequences decode."""
        self._seen: dict[int, int] = {}
        """When that was last measured, in steps."""

    def allows(self, decodes: int) -> bool:
        """Whether a step in which so many sequences decode may have guesses."""
        if not self._measured:
            return True
        known = decodes in self._plain and self._steps - self._seen[decodes] < REFRESH
        return known and self._balance > 0

    def plain(self, decodes: int, seconds: float | None) -> None:
        """A step took so long in which so many sequences decoded, and nothing was guessed."""
        if seconds is None or seconds <= 0:
            return
        first, self._measured = not self._plain, True
        old = self._plain.get(decodes, seconds)
        seconds = min(max(seconds, old / _HICCUP), old * _HICCUP)
        self._plain[decodes] = old + _NEW * (seconds - old)
        self._steps += 1
        self._seen[decodes] = self._steps
        self._earn(START * seconds if first else SHARE * seconds, seconds)

    def guessed(self, decodes: int, tokens: float, seconds: float | None) -> None:
        """A step took so long that brought so many tokens of answers, where so many sequences
        decode: guesses were in it, or it was waited for."""
        if seconds is None or seconds <= 0:
            return
        self._steps += 1
        if (plain := self._plain.get(decodes)) is None:  # the first of so many
            self._measured = True
            return
        without = tokens * plain / decodes
        seconds = min(seconds, _HICCUP * max(plain, without))
        self._earn(without - seconds + SHARE * without, plain)

    def beside(self, decodes: int, guesses: int, right: int, share: float) -> None:
        """The same of a step that computes prompts too, whose time tells nothing of its guesses:
        each is taken for `share` of a step."""
        if plain := self._plain.get(decodes):
            self._earn(plain * (right / decodes - share * guesses), plain)

    def spend(self, seconds: float | None) -> None:
        """Making guesses took so long."""
        if seconds is not None and self._measured:
            self._balance -= max(seconds, 0.0)

    def _earn(self, seconds: float, plain: float) -> None:
        self._balance = min(self._balance + seconds, _MOST * plain)
