"""Per-request state of sampling filters: XTC's random choice and mirostat's epsilon.

Mirostat v2 (Basu et al., 2021) keeps the surprise of an output near a target: it drops tokens whose
surprise is above mu, which is what an epsilon of 2 ** -mu does, and moves mu against the error of
each token. Surprise is computed from the log-probability that the API reports: before temperature
and filters.
"""

from __future__ import annotations

import math

from mlcc.engine.batch.filters import NO_FILTERS, FilterParams
from mlcc.engine.batch.random import stream_of, uniform
from mlcc.engine.request import SamplingParams

_MOST_MU = 100.0
"""In bits; 2 ** -100 is a float32, and drops nothing."""


class FilterState:
    """Filters of one request. stream: its random stream."""

    def __init__(self, sampling: SamplingParams, stream: int) -> None:
        self._filters = FilterParams(
            sampling.top_n_sigma,
            sampling.typical_p,
            sampling.epsilon_cutoff,
            sampling.eta_cutoff,
            0.0,
            sampling.dynatemp_range,
            sampling.dynatemp_exponent,
        )
        self._sampling = sampling
        self._chances = stream_of(stream)
        self._mu = 2 * sampling.mirostat_tau
        self.needs_all_tokens = sampling.mirostat != 0
        """Whether the last token must be known before the next step can be planned."""

    @classmethod
    def of(cls, sampling: SamplingParams, stream: int) -> FilterState | None:
        """None = only the usual filters."""
        made = cls(sampling, stream)
        plain = (
            made._filters == NO_FILTERS
            and not made.needs_all_tokens
            and not sampling.xtc_probability
        )
        return None if plain else made

    def filters(self, position: int) -> FilterParams:
        """Filters for the token at a position."""
        filters, params = self._filters, self._sampling
        if params.xtc_probability and uniform(self._chances, position) < params.xtc_probability:
            filters = filters._replace(xtc=params.xtc_threshold)
        if self.needs_all_tokens:
            filters = filters._replace(epsilon=2.0 ** -min(max(self._mu, 0.0), _MOST_MU))
        return filters

    @property
    def surprise(self) -> float:
        """Mirostat's mu: the largest surprise of the next token, in bits."""
        return self._mu

    @surprise.setter
    def surprise(self, mu: float) -> None:
        self._mu = mu

    def push(self, logprob: float) -> None:
        """A token was sampled."""
        if self.needs_all_tokens:
            surprise = -logprob / math.log(2)
            self._mu -= self._sampling.mirostat_eta * (surprise - self._sampling.mirostat_tau)
