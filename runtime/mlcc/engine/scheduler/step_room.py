"""What is left of the bounds of one step while it is being filled: tokens, logit rows, and words of
what is done to logits. Not pages (`caches.py`), nor how long a step may take (`pace.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.engine.batch.adjust_tables import HISTORY
from mlcc.engine.sequence import TokenSequence

WORDS_OF_A_TOKEN = len(HISTORY)
"""That a guess adds to the history of those behind it."""


@dataclass(slots=True)
class StepRoom:
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
        if seq.adjuster is None:
            return True
        words = seq.adjuster.most_words
        if words > self.adjust_words:
            return False
        self.adjust_words -= words
        return True

    def guesses(self, seq: TokenSequence, draft: Sequence[int]) -> Sequence[int]:
        """As many of some guesses as there is room for what is done to their logits, and as may
        follow each other."""
        if seq.adjuster is None or not draft:
            return draft
        fits = self.adjust_words // (seq.adjuster.most_words + len(draft) * WORDS_OF_A_TOKEN)
        return draft[: seq.adjuster.foresee(draft[:fits])]

    def take_guesses(self, seq: TokenSequence) -> None:
        """Those of its `draft`."""
        count = len(seq.draft)
        self.tokens -= count
        self.rows -= count
        if seq.adjuster is not None:
            self.adjust_words -= count * (seq.adjuster.most_words + count * WORDS_OF_A_TOKEN)
