"""Naive numpy twins of Gemma 3n's operators (AltUp): mixing of hidden states, and sparse gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
"""A numpy array; numpy's own type is lost in every arithmetic expression."""


def mix(x: Array, modes: Array, coefs: Array, parts: int, factor: float, added: float) -> Array:
    """x [n, parts * hidden], modes [n, a], coefs [out * parts, a] -> [n, out * hidden]."""
    n = x.shape[0]
    states = x.reshape(n, parts, x.shape[1] // parts)
    own = modes @ coefs.T * factor + added
    return np.einsum("nqp,nph->nqh", own.reshape(n, len(coefs) // parts, parts), states).reshape(
        n, len(coefs) // parts * states.shape[2]
    )


def match_magnitude(x: Array, like: Array, least: float) -> Array:
    """x with the root mean square of `like`, each row by itself."""
    squares = [np.mean(a * a, axis=-1, keepdims=True) for a in (x, like)]
    return x * np.sqrt(squares[1]) / np.sqrt(np.maximum(squares[0], least))


def above(x: Array, deviations: float) -> Array:
    """The part of each row above mean + deviations * standard deviation, else 0."""
    cut = x.mean(axis=-1, keepdims=True) + x.std(axis=-1, keepdims=True) * deviations
    return np.maximum(x - cut, 0)


OPERATORS: dict[str, Callable[..., Any]] = {
    "mlcc.mix": mix,
    "mlcc.match_magnitude": match_magnitude,
    "mlcc.above": above,
}
