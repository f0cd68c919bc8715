"""How much of prompts a step computes while others decode, so that nobody who reads an answer waits
for a stranger's prompt (stall-free batching: Sarathi-Serve, Agrawal et al., 2024).

It learns from how long steps took, which whoever drives the engine measured: what a step takes that
only decodes, and what a token of a prompt adds, which grows with how much is before it: of a small
model's prompt of 4,000 tokens the last ones take 8 times as long as the first. A step with both is
to take SLOWER times the first. Where several short prompts wait they may add up to TOGETHER times
as much: places that stay empty cost all more than that. Without measured times, and where nobody
decodes, prompts take all that a step holds.

What is left of the bounds of one step while it is being filled: tokens, logit rows, and words of
what is done to logits. Not pages (`caches.py`), nor how long a step may take (`pace.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.engine.batch.adjust_tables import HISTORY
from mlcc.engine.sequence import TokenSequence

WORDS_OF_A_TOKEN = len(HISTORY)
"""That a guess adds to the history of those behind it."""


@dataclass(slots=True)
class StepBudget:
    """Of one step."""

    tokens: int
    """Beside one for each sequence that decodes."""
    rows: int
    """Beside one for each sequence that runs."""
    adjust_words: int
    """Of the lists of adjustments."""

    def take(self, seq: TokenSequence, count: int) -> None:
        """So many tokens of a prompt. Where its log-probabilities are told each has a row."""
        self.tokens -= count
        if seq.prompt_logprobs is not None and count:
            self.rows -= count - 1

    def adjust(self, seq: TokenSequence) -> bool:
        """Take room for what is done to its logits, if any is: the lists of a step have a bound,
        within which each alone fits."""
        if seq.logits_processor is None:
            return True
        words = seq.logits_processor.most_words
        if words > self.adjust_words:
            return False
        self.adjust_words -= words
        return True

    def fit_draft(self, seq: TokenSequence, draft: Sequence[int]) -> Sequence[int]:
        """As many of some guesses as there is room for what is done to their logits, and as may
        follow each other."""
        if seq.logits_processor is None or not draft:
            return draft
        fits = self.adjust_words // (
            seq.logits_processor.most_words + len(draft) * WORDS_OF_A_TOKEN
        )
        return draft[: seq.logits_processor.lookahead(draft[:fits])]

    def take_draft(self, seq: TokenSequence) -> None:
        """Those of its `draft`."""
        count = len(seq.draft)
        self.tokens -= count
        self.rows -= count
        if seq.logits_processor is not None:
            self.adjust_words -= count * (
                seq.logits_processor.most_words + count * WORDS_OF_A_TOKEN
            )


SLOWER = 1.6
"""The longest of steps are to stay under twice the others: what is left is for what varies, and for
steps that have got longer since the others were."""
SHORT = 256
"""Tokens of a prompt, at most, that is short."""
TOGETHER = 3
"""Times as much, at most, as one prompt may add where several short ones wait."""
LEAST = 16
"""Tokens of a short prompt in any step, fewer where they cost more: a batch is to fill up, and a
few often take no longer than one."""
LEAST_OF_LONG = 4
"""The same of a longer one, which has many such steps: it is not to starve, and no more."""
BREATH = 16
"""After so many steps with prompts in a row comes one without: what decoding takes changes with who
decodes."""
SHORT_BREATH = 4
"""The same once more or fewer sequences decode than when that was measured."""
_SAMPLES = 5
"""Of steps that only decode: their median counts, as machines have hiccups."""
_NEW = 0.25
"""Weight of what was measured last."""
_MOST = 4.0
"""Times what was expected, at most: more than that is a hiccup's."""
_PROBE = 0.93
"""A token is taken for so much cheaper after a step that took no longer than it was to: many at
once may cost no more than a few, and who never asks for more never learns that."""

Part = tuple[int, int]
"""Tokens of one prompt in a step, and those before them."""


class PrefillAllowance:
    """What is left of one step for prompts."""

    def __init__(
        self,
        tokens: int,
        pace: PrefillBudget | None = None,
        seconds: float = 0.0,
        short_only: bool = False,
    ) -> None:
        """pace: knows what tokens cost; None = it does not matter. short_only: what is left of a
        prompt is `SHORT`, or it has to wait."""
        self._tokens, self._pace, self._seconds = tokens, pace, seconds
        self._fresh, self.short_only = True, short_only

    def tokens(self, past: int, left: int = 1) -> int:
        """How many a prompt may have of which so many are computed, and so many left. The first of
        a step always has some."""
        if self.short_only and left > SHORT:
            return 0
        if self._pace is None or self._tokens <= 0:
            return self._tokens
        affordable = int(self._seconds / self._pace.price(past))
        return min(self._tokens, max(affordable, _least(past, left) if self._fresh else 0))

    def spend(self, count: int, past: int) -> None:
        """So many are in the step."""
        if count:
            self._fresh = False
            self._tokens -= count
            if self._pace is not None:
                self._seconds -= count * self._pace.price(past)


class PrefillBudget:
    """Books of the steps in flight, and what they cost. Times are in any unit."""

    def __init__(self) -> None:
        self._flying: deque[tuple[int, Sequence[Part]]] = deque()
        """Decoding sequences and prompts of each step planned and not committed."""
        self._measured = False
        self._decode: deque[float] = deque(maxlen=_SAMPLES)
        """What steps took that only decoded, the last of them so many sequences as `_decoded`."""
        self._decoded = 0
        self._prices: dict[int, float] = {}
        """What a token of a prompt adds to a step, by `_place`."""
        self._mixed = 0
        """Steps with both, in a row, up to the one planned last."""
        self._short_turn = False
        """Whether that is for short prompts alone."""

    def allow(self, decodes: int, most: int, short: int = 0) -> PrefillAllowance:
        """For prompts in the next step, beside so many decoding sequences: `most` tokens, if that
        is not too long. short: prompts that could be in it and are `SHORT`."""
        self._short_turn = short > 0 and not self._short_turn
        if not decodes or not self._measured:
            return PrefillAllowance(most, short_only=self._short_turn)
        breath = BREATH if decodes == self._decoded else SHORT_BREATH
        if not self._decode or self._mixed >= breath:
            return PrefillAllowance(0)  # a step that only decodes tells what that takes
        seconds = self._extra * min(max(short, 1), TOGETHER)
        return PrefillAllowance(most, self, seconds, self._short_turn)

    def price(self, past: int) -> float:
        """What a token adds to a step with so many of its prompt before it."""
        place = _place(past)
        if place not in self._prices:
            known = [p for p in self._prices if p < place] or [*self._prices]
            nearest = min(known, key=lambda p: abs(p - place), default=None)
            return self._extra if nearest is None else self._prices[nearest]
        return self._prices[place]

    def planned(self, decodes: int, prompts: Sequence[Part]) -> None:
        """A step goes to the device."""
        self._mixed = self._mixed + 1 if decodes and prompts else 0
        self._flying.append((decodes, prompts))

    def took(self, seconds: float | None) -> None:
        """The oldest step in flight is done. None = nobody measured."""
        decodes, prompts = self._flying.popleft()
        if seconds is None or seconds <= 0:
            return
        self._measured = True
        if not prompts:
            self._took_decoding(decodes, seconds)
        elif decodes and self._decode:
            self._took_both(prompts, seconds)
        else:  # better than nothing: in many at once a token takes less
            price = seconds / sum(count for count, _ in prompts)
            for _, past in prompts:
                self._prices.setdefault(_place(past), price)

    def forget(self) -> None:
        """No step is in flight any more."""
        self._flying.clear()

    @property
    def _extra(self) -> float:
        """What prompts may add to a step."""
        return (SLOWER - 1) * median(self._decode)

    def _took_decoding(self, decodes: int, seconds: float) -> None:
        if decodes != self._decoded:
            self._decode.clear()
            self._decoded = decodes
        self._decode.append(seconds)

    def _took_both(self, prompts: Sequence[Part], seconds: float) -> None:
        """All prices of the step are wrong by the same factor, as far as can be known."""
        expected = sum(count * self.price(past) for count, past in prompts)
        more = seconds - median(self._decode)
        factor = min(max(more / expected, 1 / _MOST), _MOST)
        change = 1 + _NEW * (factor - 1)
        if more <= self._extra:
            change = min(change, _PROBE)
        for place, price in {_place(past): self.price(past) for _, past in prompts}.items():
            self._prices[place] = price * change


def _least(past: int, left: int) -> int:
    """Tokens that the first prompt of a step has in any case."""
    return max((LEAST if left <= SHORT else LEAST_OF_LONG) >> _place(past), 1)


def _place(past: int) -> int:
    """Tokens with so many before them cost about the same: within twice as many, from 256 on."""
    return (past >> 8).bit_length()


def median(values: Sequence[float]) -> float:
    """The middle one; of the two in the middle the larger. (`statistics` wants `decimal`, which
    Pyodide does not have.)"""
    return sorted(values)[len(values) // 2]
