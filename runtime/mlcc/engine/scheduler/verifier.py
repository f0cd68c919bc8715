"""Verification of draft tokens (Leviathan et al., 2023, with draws fixed by position).

A draft token is accepted if sampling at its position yields it. The first mismatch is kept too:
everything before it is correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mlcc.engine.sequence import TokenSequence


class Sampled(NamedTuple):
    """One row of a result."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


def sampled_rows(found: Iterable[tuple[int, float, Sequence[tuple[int, float]]]]) -> list[Sampled]:
    """Rows of a result as Python numbers."""
    return [Sampled(int(token), float(logprob), top) for token, logprob, top in found]


def verify(
    seq: TokenSequence,
    draft: Sequence[int],
    sampled: Sequence[Sampled],
    take: Callable[[Sampled], bool],
) -> int:
    """Append sampled tokens while draft tokens match. Returns the number accepted. take: appends a
    token; returns whether the draft tokens after it still apply.

    Accepted tokens stay computed. If the sequence was preempted meanwhile (it has no draft), none
    is.
    """
    kept = 1 if seq.draft else 0
    seq.computed -= len(seq.draft)
    seq.drafted += len(draft)
    accepted = 0
    for one, draft_token in zip(sampled, (*draft, -1), strict=True):
        matches = one.token == draft_token
        seq.accepted += matches
        if not (take(one) and matches):
            break
        accepted += 1
        seq.computed += kept
    return accepted
