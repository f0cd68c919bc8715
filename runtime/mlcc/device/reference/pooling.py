"""Naive numpy twins of operators of encoders and of models that see."""

from __future__ import annotations

import json
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


def replace_from(ids: Array, first: int, other: int) -> Array:
    """`other` for ids from `first` on."""
    return np.where(ids < first, ids, other).astype(ids.dtype)


def mrope_table(
    step: StepView,
    positions: Array,
    inv_freq: Array,
    scale: float,
    sections: str,
    interleaved: int = 0,
) -> Array:
    """[n, rotary_dim]: cosines, then sines, of inv_freq times the time, row or column of a token:
    sections are the numbers of frequencies of each, which follow one another or take turns."""
    columns = [step.tokens(f"position_{axis}") for axis in "thw"]
    counts = json.loads(sections)
    axes = np.repeat(np.arange(3), counts)
    if interleaved:
        axes = np.zeros(len(inv_freq), np.int64)
        for axis in (1, 2):
            axes[axis : 3 * counts[axis] : 3] = axis
    angle = np.stack(columns, 1)[:, axes].astype(inv_freq.dtype) * inv_freq
    wide = angle.astype(np.float64)
    return (np.concatenate([np.cos(wide), np.sin(wide)], axis=1) * scale).astype(inv_freq.dtype)


OPERATORS: dict[str, Callable[..., Any] | StepOperator] = {
    "mlcc.mean_rows": StepOperator(mean_rows),
    "mlcc.mrope_table": StepOperator(mrope_table),
    "mlcc.remap": remap,
    "mlcc.replace_from": replace_from,
}
