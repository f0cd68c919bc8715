"""Search for two-level grids: the scale and minimum of each group, before they are rounded to
multiples of a super-block's float16 (GGUF's Q4_K and Q5_K; Q6_K without minimum).

A group's range is tried in a few widths; for the codes of each, the scale and the minimum of least
weighted squares follow in closed form, and so does their error: candidates compare without forming
residuals. Errors are weighted by rms + |w| of the group (large weights count more), or by the
inputs' mean squares. Arrays are [group, M]: groups side by side, so that numpy's sums run along
whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from mlcc_compiler.quantization.schemes import Scheme

Floats = npt.NDArray[np.float32]

WIDER = (-0.9, -0.4, 0.1, 0.6, 1.2, 2.0)
"""Candidates: additional levels that the group's range would span."""
SHRUNK = (1.06, 1.0, 0.94, 0.88, 0.8)
"""Candidates for symmetric ranges, as factors of the range."""
SHRINK = (1.1, 1.05, 1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Candidates for one-level schemes: factors of a group's range."""
STRETCHED = {
    3: (1.06, 0.97, 0.89, 0.81),
    4: (1.05, 1.0, 0.94, 0.88, 0.8),
    5: (1.09, 1.05, 1.01, 0.96),
}
"""Candidates for curves, by bits; also tried with negative sign."""
INVERSE = (0.9596, -0.9256, 0.7336)
"""t = s (p + q s**2 + r s**4) within .004 where t + 2 t**3 = s, up to t = 1/2."""
TINY = np.float32(1e-30)


def importances(x: Floats, power: Floats | None) -> Floats:
    """Error weights of x [group, M]. `power` [group, M] is the inputs' mean square, or
    None: the weights' own magnitude is used instead."""
    square = x * x
    mean = square.mean(axis=0)
    if power is None:
        return np.asarray(np.abs(x) + np.sqrt(mean), np.float32)
    square += mean
    np.sqrt(square, out=square)
    square *= power
    return square


def fit_ranges(x: Floats, weight: Floats, levels: int) -> tuple[Floats, Floats]:
    """(scale >= 0, minimum <= 0), f32 [M], for x [group, M] ~ scale * code + minimum."""
    low = np.minimum(x.min(axis=0), 0)
    width = np.maximum(x.max(axis=0), 0) - low
    per_width = np.float32(1) / np.maximum(width, TINY)
    sums = weight.sum(axis=0)
    wx = weight * x
    sum_x = wx.sum(axis=0)
    scale, minimum = width / np.float32(levels), low
    best = np.full(x.shape[1], np.inf, np.float32)
    q, wq = np.empty_like(x), np.empty_like(x)
    for wider in WIDER:
        steps = np.float32(levels + wider) * per_width
        np.multiply(x, steps, out=q)
        q -= low * steps
        np.rint(q, out=q)
        if wider > 0.4:
            np.minimum(q, np.float32(levels), out=q)
        np.multiply(weight, q, out=wq)
        sum_q = wq.sum(axis=0)
        wq *= q
        sum_qq = wq.sum(axis=0)
        np.multiply(wx, q, out=wq)
        sum_qx = wq.sum(axis=0)
        s, m = _least_squares(sums, sum_q, sum_qq, sum_x, sum_qx)
        # The error less sum(w x x), which all candidates share.
        error = s * (s * sum_qq + 2 * (m * sum_q - sum_qx)) + m * (m * sums - 2 * sum_x)
        better = (error < best) & (s > 0)
        scale, minimum = np.where(better, s, scale), np.where(better, m, minimum)
        best = np.where(better, error, best)
    return scale, minimum


def _least_squares(
    sums: Floats, sum_q: Floats, sum_qq: Floats, sum_x: Floats, sum_qx: Floats
) -> tuple[Floats, Floats]:
    """Scale and minimum for given codes; a positive minimum cannot be stored, so it becomes 0."""
    determinant = np.maximum(sums * sum_qq - sum_q * sum_q, TINY)
    scale = (sums * sum_qx - sum_x * sum_q) / determinant
    minimum = (sum_qq * sum_x - sum_q * sum_qx) / determinant
    above = minimum > 0
    alone = sum_qx / np.maximum(sum_qq, TINY)
    return np.where(above, alone, scale), np.where(above, np.float32(0), minimum)


def fit_symmetric(x: Floats, weight: Floats, middle: int) -> Floats:
    """The scale, of either sign, f32 [M], for x [group, M] ~ scale * code, codes -middle .. middle
    - 1."""

    def nearest(q: Floats) -> None:
        np.rint(q, out=q)
        np.clip(q, -middle, middle - 1, out=q)

    return _fit_scale(x, weight, -middle, [1 / shrink for shrink in SHRUNK], nearest)


def fit_curve(x: Floats, weight: Floats, scheme: Scheme) -> Floats:
    """The scale f32 [M] for x ~ scale * value, values on the scheme's curve."""
    assert scheme.curve is not None
    a, c = map(np.float32, scheme.curve)
    n, middle, levels = (np.float32(v) for v in (2**scheme.bits, scheme.levels / 2, scheme.levels))
    first, second, third = map(np.float32, INVERSE)

    def nearest(q: Floats) -> None:
        """By the curve's inverse: exact except for some values halfway between two points."""
        q += c
        q *= np.float32(1) / a
        square = q * q
        q *= (third * square + second) * square + first
        q *= n
        q += middle
        np.rint(q, out=q)
        np.clip(q, 0, levels, out=q)
        q -= middle
        q *= np.float32(1) / n
        q *= (np.float32(2) * a) * (q * q) + a
        q += np.float32(0.5) - c
        np.floor(q, out=q)

    factors = [sign / stretch for stretch in STRETCHED[scheme.bits] for sign in (1, -1)]
    return _fit_scale(x, weight, scheme.table[0], factors, nearest)


def _fit_scale(
    x: Floats,
    weight: Floats,
    end: float,
    factors: Sequence[float],
    nearest: Callable[[Floats], None],
) -> Floats:
    """The scale f32 [M] of least weighted squares for x [group, M] ~ scale * value. Candidates are
    the scale at which x reaches the value `end`, divided by each of `factors`. `nearest` rounds
    numbers to values."""
    low, high = x.min(axis=0), x.max(axis=0)
    full = np.where(-low > high, low, high) / np.float32(end)
    safe = np.where(full == 0, np.float32(1), full)
    wx = weight * x
    scale, best = full, np.full(x.shape[1], -1, np.float32)
    q, wq = np.empty_like(x), np.empty_like(x)
    for factor in factors:
        np.multiply(x, np.float32(factor) / safe, out=q)
        nearest(q)
        np.multiply(weight, q, out=wq)
        wq *= q
        sum_qq = wq.sum(axis=0)
        np.multiply(wx, q, out=wq)
        sum_qx = wq.sum(axis=0)
        fitted = sum_qx / np.maximum(sum_qq, TINY)
        better = sum_qx * fitted > best
        scale = np.where(better, fitted, scale)
        best = np.where(better, sum_qx * fitted, best)
    return scale
