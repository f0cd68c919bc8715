"""Log-likelihood of given tokens, from logits as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def log_likelihood(logits: npt.NDArray[Any], targets: Sequence[int]) -> float:
    """Sum over rows, logits [r, vocab], of the natural log of each target's probability, in
    float64."""
    rows = logits.astype(np.float64)
    peak = rows.max(axis=1)
    log_total = peak + np.log(np.exp(rows - peak[:, None]).sum(axis=1))
    return float((rows[np.arange(len(targets)), list(targets)] - log_total).sum())
