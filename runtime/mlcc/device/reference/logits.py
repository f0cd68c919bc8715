"""Naive numpy twins of logits operators other than sampling."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mlcc.device.reference.ops import Array
from mlcc.device.reference.sampling import log_softmax
from mlcc.engine.batch.adjustments import Adjustments


def top_logprobs(logits: Array, wanted: Array, most: int) -> tuple[Array, Array]:
    """(tokens [r, most], log-probabilities) of the likeliest tokens of each row; -1 and 0 beyond
    what a row requests or has."""
    ids = np.full((len(logits), most), -1, np.int32)
    logprobs = np.zeros((len(logits), most), np.float32)
    for i, row in enumerate(logits.astype(np.float64)):
        row = np.where(np.isnan(row), -np.inf, row)
        best = np.argsort(-row, kind="stable")[: wanted[i]]
        best = best[row[best] > -np.inf]
        ids[i, : len(best)] = best
        logprobs[i, : len(best)] = log_softmax(row)[best]
    return ids, logprobs


def together(x: Array) -> float:
    """The logit of all these tokens together: the logarithm of the sum of exponentials."""
    top = float(x.max())
    return top if top == -np.inf else top + float(np.log(np.exp(x - top).sum()))


def adjust(
    logits: Array, adjustments: Adjustments, last_sampled: Array, first_timestamp: int = 0
) -> Array:
    """Apply penalties, biases, masks and the rule of timestamps in place, as
    `mlcc.engine.batch.adjust_tables` defines them."""
    for entry in adjustments.rows():
        x, penalties = logits[entry.row], entry.penalties
        counts = Counter(dict(entry.history))
        if entry.in_flight >= 0:
            counts[int(last_sampled[entry.in_flight])] += 1
        for token, count in counts.items():
            y = x[token] / penalties.repetition if x[token] > 0 else x[token] * penalties.repetition
            x[token] = y - penalties.frequency * count - penalties.presence * (count > 0)
        for token, bias in entry.biases:
            x[token] += bias
        if entry.allowed is not None:
            bits = np.unpackbits(np.frombuffer(entry.allowed, np.uint8), bitorder="little")
            x[bits[: len(x)] == 0] = -np.inf
            if first_timestamp and together(x[first_timestamp:]) > x[:first_timestamp].max():
                x[:first_timestamp] = -np.inf
    return logits
