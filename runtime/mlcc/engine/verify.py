"""What a step says of its rows: tokens of answers one by one, and of guesses those that are right.

A guess is right if it is the token that is sampled behind what comes before it; the first token
that is not as guessed is taken too, for nothing wrong lies before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import NamedTuple

from mlcc.engine.batch import Result
from mlcc.engine.events import Event
from mlcc.engine.packing import Row
from mlcc.engine.sequence import TokenSequence


class Sampled(NamedTuple):
    """What the device says of one row."""

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


class Step(NamedTuple):
    """A step that is planned and not committed."""

    rows: list[Row]
    decoded: int
    """Tokens that it computes, guesses among them, if none is of a prompt; 0 = some are."""

    @property
    def width(self) -> int:
        """Rows of its result."""
        return sum(row.width for row in self.rows)

    def sampled(self, result: Result) -> Iterator[tuple[Row, list[Sampled]]]:
        """Each row with what was sampled for it, and behind each of its guesses."""
        tops: Iterable[Sequence[tuple[int, float]]] = result.top_logprobs or repeat(())
        found = zip(map(int, result.tokens), map(float, result.logprobs), tops)  # noqa: B905
        each = (Sampled(*one) for one in found)
        for row in self.rows:
            yield row, [*islice(each, row.width)]


def verified(
    seq: TokenSequence,
    draft: Sequence[int],
    sampled: Sequence[Sampled],
    take: Callable[[TokenSequence, Sampled], tuple[list[Event], bool]],
) -> tuple[list[Event], int]:
    """Take what was sampled as far as the guesses are right; returns what happened, and how many
    were. take: appends a token, and says whether what was guessed behind it still counts.

    What was computed of the guesses counts from here on as far as they are right; if the sequence
    gave way meanwhile (it has no draft), nothing does.
    """
    held = 1 if seq.draft else 0
    seq.computed -= len(seq.draft)
    seq.drafted += len(draft)
    events: list[Event] = []
    right = 0
    for one, guess in zip(sampled, (*draft, -1), strict=True):
        good = one.token == guess
        seq.accepted += good
        more, goes_on = take(seq, one)
        events += more
        if not (good and goes_on):
            break
        right += 1
        seq.computed += held
    return events, right
