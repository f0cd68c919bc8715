"""What a step says of its rows: tokens of answers one by one, and of guesses those that are right.

A guess is right if it is the token that is sampled behind what comes before it; the first token
that is not as guessed is taken too, for nothing wrong lies before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mlcc.engine.sequence import TokenSequence


class Sampled(NamedTuple):
    """What the device says of one row."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


def sampled(found: Iterable[tuple[int, float, Sequence[tuple[int, float]]]]) -> list[Sampled]:
    """Of a result's rows, in Python's own numbers."""
    return [Sampled(int(token), float(logprob), top) for token, logprob, top in found]


def verified(
    seq: TokenSequence,
    draft: Sequence[int],
    sampled: Sequence[Sampled],
    take: Callable[[Sampled], bool],
) -> int:
    """Take what was sampled as far as the guesses are right; returns how many were. take: appends a
    token, and says whether what was guessed behind it still counts.

    What was computed of the guesses counts from here on as far as they are right; if the sequence
    gave way meanwhile (it has no draft), nothing does.
    """
    held = 1 if seq.draft else 0
    seq.computed -= len(seq.draft)
    seq.drafted += len(draft)
    right = 0
    for one, guess in zip(sampled, (*draft, -1), strict=True):
        good = one.token == guess
        seq.accepted += good
        if not (take(one) and good):
            break
        right += 1
        seq.computed += held
    return right
