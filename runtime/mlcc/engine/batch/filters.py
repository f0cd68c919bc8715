"""Sampling filters of a logit row beyond temperature, top-k, top-p and min-p.

The order of all filters is llama.cpp's default; the two cutoffs, which it lacks, are where Hugging
Face has them. Each filter sees the tokens that those before it kept, with probabilities that add up
to 1:

    adjust        penalties, biases and masks (`adjust_tables.py`)
    top_n_sigma   keep logits within n standard deviations of the largest (Tang et al., 2024)
    top_k         keep the k most likely
    typical_p     keep those whose surprise is nearest to the entropy, up to a mass of p (Meister et
                  al., 2023); the likeliest may go
    top_p, min_p  of the mass, and of the most likely that is left
    epsilon       drop those less likely than epsilon (Hewitt et al., 2022)
    eta           drop those less likely than min(eta, sqrt(eta) * e ** -entropy) (same paper)
    xtc           of those at least this likely keep only the least likely ("exclude top choices")
    temperature   with dynatemp_range r: from temperature - r to temperature + r, by how near the
                  entropy is to that of an even choice, to the power of dynatemp_exponent

Equal logits are kept or dropped alike, and at least one is kept. Mirostat is not a filter of its
own: it is an epsilon that changes with each token (`filter_state.py`).
"""

from __future__ import annotations

from typing import NamedTuple

FORBIDDEN = -1e9
"""Logits from here down were forbidden, and are ignored by standard deviation and entropy."""


class FilterParams(NamedTuple):
    """Filters of one row; the columns `tables.FILTERS`. The defaults do nothing."""

    top_n_sigma: float = 0.0
    typical_p: float = 1.0
    epsilon: float = 0.0
    eta: float = 0.0
    xtc: float = 0.0
    """0 = off for this token: the engine draws the chance."""
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0


NO_FILTERS = FilterParams()
