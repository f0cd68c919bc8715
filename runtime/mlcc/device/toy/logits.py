"""The toy's logits, whatever is done to them, and the token that is chosen: exact, to the bit.

A row's logits go round the vocabulary: of the token that the toy's hash says (`toy_token`) most,
then one less for each token after it. The log-probability of a token is its logit less `ABOVE`, so
that some logits are above 0 and most below, which `repetition` tells apart. Adjustments are those
of `mlcc.engine.batch.adjust_tables`, in Python's floats (IEEE doubles) and in the order written
there; of the logits that come out the largest is chosen, of equals the lowest token, whatever the
temperature: the sampling parameters are in the hash already. So a row that nobody adjusts answers
what `toy_token` says. Standard library only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from mlcc.device.check_batch import require
from mlcc.engine.batch.adjust_tables import MASK_BITS
from mlcc.engine.batch.adjustments import AdjustedRow
from mlcc.engine.batch.batch import TopLogprobs

ABOVE = 3.0
"""The logit whose log-probability is 0."""


def toy_logits(token: int, logprob: float, vocab_size: int) -> list[float]:
    """The logits of a row whose hash says this token, with this log-probability."""
    return [ABOVE + logprob - (t - token) % vocab_size for t in range(vocab_size)]


def adjust(logits: list[float], row: AdjustedRow, last_sampled: Sequence[int]) -> None:
    """In place. last_sampled: the tokens of the step before."""
    counts = Counter(dict(row.history))
    if row.in_flight >= 0:
        counts[last_sampled[row.in_flight]] += 1
    repetition, frequency, presence = (
        row.penalties.repetition, row.penalties.frequency, row.penalties.presence,
    )  # fmt: skip
    for token, count in counts.items():
        x = logits[token]
        x = x / repetition if x > 0 else x * repetition
        logits[token] = x - frequency * count - presence * (count > 0)
    for token, bias in row.biases:
        logits[token] += bias
    if row.allowed is not None:
        for token in range(len(logits)):
            if not row.allowed[token // MASK_BITS] >> token % MASK_BITS & 1:
                logits[token] = -math.inf


def likeliest(logits: Sequence[float], count: int) -> TopLogprobs:
    """So many tokens and their log-probabilities, the likeliest first, of equals the lowest token;
    fewer where no other token has a probability."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:count]
    return [(t, logits[t] - ABOVE) for t in order if logits[t] > -math.inf]


def choose(logits: Sequence[float]) -> tuple[int, float]:
    """The token of a row, and its log-probability. Raises BadBatchError if none is allowed."""
    best = likeliest(logits, 1)
    require(bool(best), "a row for which no token is allowed")
    return best[0]
