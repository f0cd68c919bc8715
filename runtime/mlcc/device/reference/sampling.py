"""Naive numpy twin of sampling, in float64: filter after filter, as in `mlcc.engine.batch.filters`.

`parameters` are columns of a step's rows, in the order of SAMPLED.
"""

from __future__ import annotations

import numpy as np

from mlcc.device.reference.ops import Array
from mlcc.engine.batch.filters import FORBIDDEN, NO_FILTERS, FilterParams
from mlcc.engine.batch.tables import FILTERS

SAMPLED = ("temperature", "top_k", "top_p", "min_p", "uniform", *FILTERS)


def sample(logits: Array, *parameters: Array, given: Array | None = None) -> tuple[Array, Array]:
    """(tokens [r], log-probabilities [r] of the raw logits). given: int [r], tokens that are not
    drawn; -1 = drawn."""
    tokens = np.zeros(len(logits), np.int32)
    logprobs = np.zeros(len(logits), np.float32)
    for i, row in enumerate(logits.astype(np.float64)):
        row = np.where(np.isnan(row), -np.inf, row)
        temperature, top_k, top_p, min_p, uniform, *others = (float(p[i]) for p in parameters)
        if given is not None and given[i] >= 0:
            tokens[i] = given[i]
        elif temperature <= 0:
            tokens[i] = np.argmax(row)
        else:
            mass = filtered(row, temperature, int(top_k), top_p, min_p, FilterParams(*others))
            tokens[i] = draw(mass, uniform)
        logprobs[i] = log_softmax(row)[tokens[i]]
    return tokens, logprobs


def filtered(
    row: Array,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    filters: FilterParams = NO_FILTERS,
) -> Array:
    """Probabilities relative to the likeliest remaining token; 0 for dropped tokens."""
    kept = row > -np.inf
    if not kept.any() or row.max() == np.inf:
        return np.zeros_like(row)
    if filters.top_n_sigma > 0:
        counted = row[row > FORBIDDEN]
        if len(counted):
            kept &= row >= row.max() - filters.top_n_sigma * counted.std()
    if 0 < top_k < len(row):
        kept &= row >= np.sort(row)[-top_k]
    if filters.typical_p < 1:
        share, _ = shares(row, kept)
        surprise = -np.log(np.where(share > 0, share, 1e-300))
        kept &= nearest(abs(surprise - entropy(share)), share, filters.typical_p)
    if top_p < 1:
        share, _ = shares(row, kept)
        kept &= nearest(np.where(kept, row.max() - row, np.inf), share, top_p)
    if min_p > 0:
        _, relative = shares(row, kept)
        kept &= relative >= min(min_p, 1.0)
    if filters.epsilon > 0:
        kept &= at_least(filters.epsilon, *shares(row, kept))
    if filters.eta > 0:
        share, relative = shares(row, kept)
        least = min(filters.eta, np.sqrt(filters.eta) * np.exp(-entropy(share)))
        kept &= at_least(least, share, relative)
    if filters.xtc > 0:
        share, _ = shares(row, kept)
        likely = kept & (share >= filters.xtc)
        if likely.any():
            kept &= row <= row[likely].min()
    if filters.dynatemp_range > 0:
        temperature = dynamic(row, kept, temperature, filters)
    largest = row[kept].max()
    return np.where(kept, np.exp((row - largest) / max(temperature, 1e-36)), 0)


def shares(row: Array, kept: Array) -> tuple[Array, Array]:
    """Probabilities of the remaining tokens, and those relative to the largest."""
    relative = np.where(kept, np.exp(row - row[kept].max()), 0)
    return relative / relative.sum(), relative


def at_least(least: float, share: Array, relative: Array) -> Array:
    """Tokens of at least this probability, and always the likeliest."""
    kept: Array = (share >= least) | (relative == 1)
    return kept


def nearest(distance: Array, share: Array, wanted: float) -> Array:
    """The smallest set of nearest tokens with the required mass; equals stay together."""
    order = np.argsort(distance, kind="stable")
    before = np.cumsum(share[order]) - share[order]
    last = order[before < wanted * share.sum()][-1:]
    kept: Array = distance <= (distance[last[0]] if len(last) else distance.min())
    return kept


def entropy(share: Array) -> float:
    """In nats."""
    some = share[share > 0]
    return float(-(some * np.log(some)).sum())


def dynamic(row: Array, kept: Array, temperature: float, filters: FilterParams) -> float:
    """Temperature by the entropy of the remaining tokens (llama.cpp's dynatemp)."""
    count = np.count_nonzero(kept & (row > FORBIDDEN))
    if count < 2:
        return temperature
    evenness = np.clip(entropy(shares(row, kept)[0]) / np.log(count), 1e-30, 1)
    low = max(temperature - filters.dynatemp_range, 0.0)
    high = temperature + filters.dynatemp_range
    return float(low + (high - low) * evenness**filters.dynatemp_exponent)


def draw(mass: Array, uniform: float) -> int:
    """The first token at which the cumulated mass passes uniform * total."""
    past = np.nonzero(np.cumsum(mass) > uniform * mass.sum())[0]
    return int(past[0]) if len(past) else int(np.argmax(mass))


def log_softmax(row: Array) -> Array:
    """Natural log-probabilities of one row of logits."""
    shifted: Array = row - row.max()
    return shifted - np.log(np.exp(shifted).sum())
