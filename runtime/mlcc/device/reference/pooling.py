"""Naive numpy twins of encoder operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.device.reference.caches import StepOperator
from mlcc.device.reference.ops import Array
from mlcc.device.reference.step_view import StepView


def mean_rows(step: StepView, x: Array, rows: Array) -> Array:
    """Mean over all tokens of the sequence of token rows[i]."""
    owners = step.tokens("sequence")
    return np.stack([x[: len(owners)][owners == owners[row]].mean(0) for row in rows])


def remap(ids: Array, add: int, divide: int, modulo: int) -> Array:
    """(ids + add) // divide, then % modulo unless that is 0."""
    found = (ids + add) // divide
    return found % modulo if modulo else found


OPERATORS: dict[str, Callable[..., Any] | StepOperator] = {
    "mlcc.mean_rows": StepOperator(mean_rows),
    "mlcc.remap": remap,
}
