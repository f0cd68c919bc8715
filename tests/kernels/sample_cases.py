"""Cases of sampling for the kernels of every device: filters, and logits that are hard on them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from step_cases import LAYOUTS, sample_step

from mlcc.device.step_view import StepView
from mlcc.engine.tables import StepLayout

Array = Any
Row = tuple[float, ...]
"""(temperature, top_k, top_p, min_p), and the uniform last where a token is drawn."""

FILTERS: list[Row] = list(
    itertools.product((0, 0.5, 1, 3), (0, 1, 7, 10**6), (1, 0.9, 0.05, 0), (0, 0.02, 1))
)


def with_uniforms(filters: Sequence[Row], rng: np.random.Generator) -> list[Row]:
    """The filters, each with a uniform."""
    return [(*f, u) for f, u in zip(filters, rng.random(len(filters)), strict=True)]


def columns(rows: Sequence[Row]) -> list[Array]:
    """The five parameters of the twin that follow the logits, as a step has them."""
    view = StepView(sample_step(layout_for(len(rows)), rows))
    return [view.rows(name) for name in ("temperature", "top_k", "top_p", "min_p", "uniform")]


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
