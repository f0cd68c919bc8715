"""What a row of logits may wish of sampling beyond temperature, top-k, top-p and min-p.

The order of all of them is llama.cpp's default, with the two cutoffs, which it lacks, where Hugging
Face has them. Each looks at what those before it kept, whose probabilities add up to 1:

    adjust        penalties, biases and masks (`adjust_tables.py`)
    top_n_sigma   keep logits within n standard deviations of the largest (Tang et al., 2024)
    top_k         keep the k most likely
    typical_p     keep those whose surprise is nearest to the entropy, up to a mass of p (Meister et
                  al., 2023); the likeliest may go
    top_p, min_p  of the mass, and of the most likely that is left
    epsilon       drop those less likely than epsilon (Hewitt et al., 2022)
    eta           drop those less likely than min(eta, sqrt(eta) * e ** -entropy) (the same)
    xtc           of those at least so likely keep the least likely alone ("exclude top choices")
    temperature   with dynatemp_range r: from temperature - r to temperature + r, by how near the
                  entropy is to that of an even choice, to the power of dynatemp_exponent

Logits that are equal are kept or dropped alike, and one at least is kept. Mirostat is no filter of
its own: it is an epsilon that moves with each token (`choices.py`).
"""

from __future__ import annotations

from typing import NamedTuple

FORBIDDEN = -1e9
"""Logits from here down were forbidden, and count neither for a deviation nor as a choice."""


class Filters(NamedTuple):
    """Of one row; the columns `tables.FILTERS`, and the defaults do nothing."""

    top_n_sigma: float = 0.0
    typical_p: float = 1.0
    epsilon: float = 0.0
    eta: float = 0.0
    xtc: float = 0.0
    """0 = none this time: the chance of it is the engine's."""
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0


NO_FILTERS = Filters()
