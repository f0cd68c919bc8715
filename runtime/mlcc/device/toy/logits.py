"""The toy executor's logits, their adjustment, and the chosen token: exact, to the bit.

A row's logits go round the vocabulary: the largest for the token of the toy's hash (`toy_token`),
then one less for each token after it. The log-probability of a token is its logit less `ABOVE`, so
that some logits are above 0 and most below, which `repetition` treats differently. Adjustments are
those of `mlcc.engine.batch.adjust_tables`, in Python's floats (IEEE doubles) and in the order
written there. The largest adjusted logit is chosen, the lowest token of equals, whatever the
temperature: the sampling parameters are in the hash already. So a row without adjustments yields
`toy_token`.

Standard library only.
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
    """The logits of a row with this hash token and log-probability."""
    return [ABOVE + logprob - (t - token) % vocab_size for t in range(vocab_size)]


def adjust(logits: list[float], row: AdjustedRow, last_sampled: Sequence[int]) -> None:
    """Adjust in place. last_sampled: tokens of the previous step."""
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
    """The likeliest tokens and their log-probabilities, the lowest token first among equals; fewer
    if no other token has a probability."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:count]
    return [(t, logits[t] - ABOVE) for t in order if logits[t] > -math.inf]


def choose(logits: Sequence[float]) -> tuple[int, float]:
    """The token of a row, and its log-probability. Raises BadBatchError if no token is allowed."""
    best = likeliest(logits, 1)
    require(bool(best), "a row for which no token is allowed")
    return best[0]
