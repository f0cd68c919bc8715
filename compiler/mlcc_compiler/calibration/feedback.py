"""Rounding that makes up for itself: each column's error moves the columns that are rounded after
it, weighed by what the inputs have in common.

LDLQ (Chee et al., QuIP, 2023), which is GPTQ (Frantar et al., 2022) without the inverse: with the
inputs' second moments H = R R', R upper triangular, the product's error is |E R|^2 for weight
errors E. Column j of E R is e[j] R[j, j] plus what earlier columns left, so the value to round is
w[j] + (sum over i < j of e[i] R[i, j]) / R[j, j]. Columns go by falling H[j, j], the grids (scale
and offset of each group) are fixed before. Not here: grids, formats, models.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]

BLOCK = 64
"""Columns whose errors are handed on one by one; to the blocks behind, by one product."""
DAMPING = 0.1
"""Of the mean of H's diagonal, added to it: inputs that were never seen keep their weights, and
what inputs have in common on this text alone counts for less. On text of another domain that leaves
5 to 15 % less error than the usual .01 (Gemma 3 270M, up and down; little elsewhere)."""
MOST_DAMPING = 1.0


@dataclass(frozen=True)
class Moments:
    """What rounding needs of a matrix's inputs: the factor R of their second moments, in the order
    in which columns are rounded."""

    order: npt.NDArray[np.intp]
    """[K] columns, those with the largest inputs first."""
    factor: Floats
    """[K, K] upper triangular; factor @ factor.T is H in that order, damped."""
    power: Floats
    """[K] mean square of each input: H's diagonal in the matrix's own order."""

    @classmethod
    def of(cls, second: Floats) -> Moments:
        """From sums of products of inputs, [K, K]. Scale does not matter; `second` is used up."""
        power = second.diagonal().copy()
        mean = float(power.mean()) or 1.0
        power /= mean
        order = np.argsort(-power, kind="stable")
        ordered = second[np.ix_(order, order)]
        ordered /= mean
        damping = DAMPING
        while True:
            # Of the matrix turned round, so that the factor is upper triangular when turned back.
            turned = ordered[::-1, ::-1].copy()
            turned[np.diag_indices_from(turned)] += damping
            try:
                factor = np.linalg.cholesky(turned)[::-1, ::-1]
            except np.linalg.LinAlgError:
                if damping >= MOST_DAMPING:
                    raise
                damping *= 10
                continue
            return cls(order, np.ascontiguousarray(factor), power)


Grid = tuple[Floats, Floats]
"""Of each group of a row, [N, K / group]: value = scale * code + offset."""


def round_with_feedback(
    weight: Floats, grid: Grid, levels: int, moments: Moments, cores: int
) -> Codes:
    """Codes 0 .. levels [N, K] of a matrix f32 [N, K] on fixed grids. Rows do not meet."""
    n, k = weight.shape
    codes = np.empty((n, k), np.uint8)
    step = max(1, -(-n // cores))

    def run(rows: slice) -> None:
        scale, offset = (part[rows] for part in grid)
        codes[rows] = _round_rows(weight[rows], scale, offset, levels, moments)

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(run, (slice(i, i + step) for i in range(0, n, step))))
    return codes


def _round_rows(
    weight: Floats, scale: Floats, offset: Floats, levels: int, moments: Moments
) -> Codes:
    k, order, factor = weight.shape[1], moments.order, moments.factor
    group = order // (k // scale.shape[1])
    columns = np.ascontiguousarray(weight.T[order])  # a column of the matrix is a row here
    errors = np.empty_like(columns)
    found = np.empty(columns.shape, np.uint8)
    scales, offsets = np.ascontiguousarray(scale.T), np.ascontiguousarray(offset.T)
    inverses = np.where(scales == 0, np.float32(0), 1 / np.where(scales == 0, 1, scales))
    for first in range(0, k, BLOCK):
        last = min(first + BLOCK, k)
        owed = factor[:first, first:last].T @ errors[:first]
        for j in range(first, last):
            g = group[j]
            code = owed[j - first]
            code /= factor[j, j]
            code += columns[j]
            code -= offsets[g]
            code *= inverses[g]
            np.rint(code, out=code)
            np.clip(code, 0, levels, out=code)
            found[j] = code
            code *= scales[g]
            code += offsets[g]
            np.subtract(columns[j], code, out=errors[j])
            if j + 1 < last:
                owed[j + 1 - first :] += factor[j, j + 1 : last, None] * errors[j]
    codes = np.empty(weight.shape, np.uint8)
    codes[:, order] = found.T
    return codes
