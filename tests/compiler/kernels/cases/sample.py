"""Cases of sampling for the kernels of every device: filters, and difficult logits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlcc.device.reference.sampling import SAMPLED, filtered
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.filters import FilterParams
from mlcc.engine.batch.tables import StepLayout
from tests.compiler.kernels.cases.step import LAYOUTS, sample_step

Array = Any
Row = tuple[float, ...]
"""(temperature, top_k, top_p, min_p), the uniform where a token is drawn, then other filters."""

FILTERS: list[Row] = list(
    itertools.product((0, 0.5, 1, 3), (0, 1, 7, 10**6), (1, 0.9, 0.05, 0), (0, 0.02, 1))
)


OTHERS = [
    FilterParams(top_n_sigma=1.0),
    FilterParams(top_n_sigma=2.5),
    FilterParams(typical_p=0.2),
    FilterParams(typical_p=0.9),
    FilterParams(epsilon=0.001),
    FilterParams(epsilon=0.03),
    FilterParams(epsilon=0.9),
    FilterParams(eta=0.01),
    FilterParams(eta=0.3),
    FilterParams(xtc=0.01),
    FilterParams(xtc=0.1),
    FilterParams(dynatemp_range=0.5),
    FilterParams(dynatemp_range=3.0, dynatemp_exponent=2.5),
]
"""Filters beyond temperature, top-k, top-p and min-p."""


def with_uniforms(filters: Sequence[Row], rng: np.random.Generator) -> list[Row]:
    """The filters, each with a uniform."""
    return [(*f, u) for f, u in zip(filters, rng.random(len(filters)), strict=True)]


def columns(rows: Sequence[Row]) -> list[Array]:
    """The parameters of the twin that follow the logits, as a step has them."""
    view = StepView(sample_step(layout_for(len(rows)), rows))
    return [view.rows(name) for name in SAMPLED]


def filter_rows(rng: np.random.Generator, mixed: int = 60) -> list[Row]:
    """Each of `OTHERS` alone at two temperatures, and as many mixtures of all filters."""
    plain, found = (0, 1.0, 0.0), []
    for filters, temperature in itertools.product(OTHERS, (1.0, 0.6)):
        found.append((temperature, *plain, rng.random(), *filters))
    for _ in range(mixed):
        filters = [*FilterParams()]
        for i in rng.integers(0, len(OTHERS), 3):
            pairs = zip(FilterParams(), OTHERS[i], filters, strict=True)
            filters = [old if new == none else new for none, new, old in pairs]
        usual = rng.choice([0, 9, 40]), rng.choice([1.0, 0.9, 0.4]), rng.choice([0.0, 0.02, 0.2])
        found.append((rng.choice([0.3, 1.0, 2.0]), *usual, rng.random(), *filters))
    return found


def near(row: Row, rng: np.random.Generator, bound: float, count: int = 60) -> list[Row]:
    """The row with each parameter moved by up to `bound` of itself, at random."""
    moves = 1 + bound * rng.choice([-1, 0, 1], (count, len(row)))
    return [(move[0] * row[0], row[1], *(move[2:] * row[2:])) for move in moves]


def chi_square(seen: Array, mass: Array) -> None:
    """Check that counted tokens follow these masses, with a false alarm in 1 of 10,000 cases."""
    expected = mass / mass.sum() * seen.sum()
    kept = expected > 0
    assert (seen[~kept] == 0).all()
    chi2, freedom = ((seen - expected)[kept] ** 2 / expected[kept]).sum(), kept.sum() - 1
    assert chi2 < freedom + 3.72 * np.sqrt(2 * freedom) + 10


def distributions(rng: np.random.Generator, count: int) -> list[tuple[list[Row], Array, Array]]:
    """(rows to be drawn, the logits of each, masses by which they are) for each filter."""
    found = []
    for filters in [FilterParams(), *OTHERS]:
        row = (rng.standard_normal(64) * 1.5).astype(np.float32)
        mass = filtered(row.astype(np.float64), 0.8, 40, 0.97, 0.01, FilterParams(*filters))
        rows: list[Row] = [(0.8, 40, 0.97, 0.01, u, *filters) for u in rng.random(count)]
        found.append((rows, row, mass))
    return found


def layout_for(rows: int) -> StepLayout:
    """Few different ones: each is a kernel to compile."""
    return LAYOUTS[0] if rows <= LAYOUTS[0].max_rows else replace(LAYOUTS[0], max_rows=40000)


def few_values(rows: int, vocab: int, rng: np.random.Generator) -> Array:
    """Logits of a few values only, with zeros of both signs, which are equal."""
    logits = rng.integers(-2, 3, (rows, vocab)).astype(np.float32)
    logits[logits == 0] *= rng.choice([-1, 1], (logits == 0).sum())
    return logits


def not_numbers() -> tuple[Array, Array, Array]:
    """(logits of 100, the first and the last token that may be drawn) of rows with NaN and
    infinities."""
    logits = np.zeros((7, 100), np.float32)
    logits[0] = np.nan
    logits[1] = -np.inf
    logits[2, :50] = np.nan
    logits[3, 7] = np.inf
    logits[4] = -np.inf
    logits[4, 42] = 3
    logits[5] = np.nan
    logits[5, 99] = -2
    logits[6, [20, 60]] = np.inf
    return logits, np.array([0, 0, 50, 7, 42, 99, 20]), np.array([0, 0, 99, 7, 42, 99, 20])
