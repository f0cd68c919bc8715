"""Codes, scales and offsets of the affine family, by a search over clipping ranges.

Round-to-nearest with a small search: each group tries a few clipping ranges, keeps the one whose
best scale leaves the smallest squared error, and rounds once more with that scale as it is stored
(f16). For codes q the best scale is sum(w q) / sum(q q), and then the error is sum(w w) - sum(w
q)**2 / sum(q q), so that candidates compare without forming the residual (the closed form behind
llama.cpp's and HQQ's searches). With minima, scale and minimum are the least-squares line through
(code, weight).
"""

from __future__ import annotations

import numpy as np

from mlcc_compiler.quantization import native_search
from mlcc_compiler.quantization.grid_search import SHRINK
from mlcc_compiler.quantization.quantized import Codes, Floats, Quantized
from mlcc_compiler.quantization.schemes import MIDDLE, MINIMA, ZEROS, Scheme

_NARROW = (1.0, 0.95, 0.9, 0.85, 0.8)
HALF_MAX = 65504.0


def encode(weight: Floats, scheme: Scheme, *, fast: bool = False) -> Quantized:
    """Quantize rows f32 [N, K].

    fast: use natively compiled kernels, where they exist (without minima); bit-identical.
    """
    n, k = weight.shape
    groups = weight.reshape(-1, scheme.group_of(k))
    per_row = (n, scheme.groups_of(k))
    if scheme.offset == MINIMA:
        scale, minimum = lines(groups, scheme.levels)
        half, low = halves(scale), halves(minimum)
        steps = round_to(groups - low.astype("f4")[:, None], half.astype("f4"), 0, scheme.levels)
        return Quantized(
            scheme,
            steps.astype(np.uint8).reshape(n, k),
            half.reshape(per_row),
            minima=low.reshape(per_row),
        )
    fast = fast and native_search.takes(*groups.shape)
    scale, zero = _fitted(groups, scheme, fast)
    half = halves(scale)
    codes = _codes(groups, half.astype(np.float32), zero, scheme, fast)
    zeros = zero.astype(np.uint8).reshape(per_row) if scheme.offset == ZEROS else None
    return Quantized(scheme, codes.reshape(n, k), half.reshape(per_row), zeros=zeros)


def _fitted(groups: Floats, scheme: Scheme, fast: bool) -> tuple[Floats, Floats]:
    """Scale and zero point of each group, [M]. One candidate suffices at 8 bits: clipping there
    costs more than finer steps gain."""
    symmetric = scheme.offset == MIDDLE
    if fast and scheme.bits < 8:
        return native_search.fit_affine(groups, scheme.levels, scheme.middle if symmetric else None)
    if fast and symmetric:
        middle = np.full(len(groups), scheme.middle, np.float32)
        return native_search.largest(groups) / np.float32(127), middle
    x = np.ascontiguousarray(groups.T)  # side by side, so that sums run along whole vectors
    scale, zero = _range(x, scheme)
    return scale if scheme.bits == 8 else search(x, scale, zero, scheme.levels), zero


def _codes(groups: Floats, scale: Floats, zero: Floats, scheme: Scheme, fast: bool) -> Codes:
    """Codes of weights [M, g], for the scales as they are stored."""
    if fast and scheme.offset == MIDDLE:
        none, middle = np.zeros_like(scale), scheme.middle
        return native_search.codes(groups, none, inverse(scale), -middle, scheme.levels - middle)
    signed = round_to(groups, scale, zero, scheme.levels)
    signed += zero[:, None]
    return signed.astype(np.uint8)


def halves(values: Floats) -> np.ndarray:
    """float16, saturated at its largest value."""
    return np.clip(values, -HALF_MAX, HALF_MAX).astype(np.float16)


def _range(x: Floats, scheme: Scheme) -> tuple[Floats, Floats]:
    """The scale that covers each group of x [g, M], and its zero point (as f32)."""
    low, high = x.min(axis=0), x.max(axis=0)
    if scheme.offset != MIDDLE:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = (high - low) / np.float32(scheme.levels)
        return scale, np.rint(-low * inverse(scale))
    zero = np.full(x.shape[1], scheme.middle, np.float32)
    if scheme.bits == 8:
        return np.maximum(-low, high) / np.float32(127), zero
    # The side with the larger magnitude gets the extra code -8, by the sign of the scale.
    return np.where(-low > high, low, high) / np.float32(-scheme.middle), zero


def search(x: Floats, scale: Floats, zero: Floats, levels: int) -> Floats:
    """The least-squares scale of the best clipping range of x [g, M], [M]."""
    best, best_gain = scale, np.full(x.shape[1], -1, np.float32)
    for shrink in SHRINK:
        signed = x * inverse(scale * np.float32(shrink))
        np.rint(signed, out=signed)
        np.clip(signed, -zero, np.float32(levels) - zero, out=signed)
        dot = (x * signed).sum(axis=0)
        signed *= signed
        fitted = dot * inverse(signed.sum(axis=0))
        better = dot * fitted > best_gain
        best = np.where(better, fitted, best)
        best_gain = np.where(better, dot * fitted, best_gain)
    return best


def lines(groups: Floats, levels: int) -> tuple[Floats, Floats]:
    """The scale and the minimum of each group, [M], by least squares over codes of some ranges."""
    size = np.float32(groups.shape[1])
    low, high = groups.min(axis=1), groups.max(axis=1)
    total, squares = groups.sum(axis=1), np.einsum("mg,mg->m", groups, groups)
    scale, minimum = (high - low) / np.float32(levels), low
    best = np.full(len(groups), np.inf, np.float32)
    best_scale, best_minimum = scale, minimum
    for narrow in _NARROW:
        # the range shrinks about its middle, and clips what is outside
        step = scale * np.float32(narrow)
        start = low + (high - low) * np.float32((1 - narrow) / 2)
        codes = round_to(groups - start[:, None], step, 0, levels)
        dot = np.einsum("mg,mg->m", groups, codes)
        ones, norm = codes.sum(axis=1), np.einsum("mg,mg->m", codes, codes)
        slope = (size * dot - ones * total) * inverse(size * norm - ones * ones)
        base = (total - slope * ones) / size
        error = squares - 2 * slope * dot - 2 * base * total
        error += slope * slope * norm + 2 * slope * base * ones + size * base * base
        better = (error < best) & (slope > 0)
        best = np.where(better, error, best)
        best_scale = np.where(better, slope, best_scale)
        best_minimum = np.where(better, base, best_minimum)
    return best_scale, best_minimum


def round_to(groups: Floats, scale: Floats, zero: Floats | int, levels: int) -> Floats:
    """Codes less the zero point, as f32 [M, g]."""
    signed = groups * inverse(scale)[:, None]
    np.rint(signed, out=signed)
    low = -np.asarray(zero, np.float32).reshape(-1, 1)
    np.clip(signed, low, low + np.float32(levels), out=signed)
    return signed


def inverse(x: Floats) -> Floats:
    """1 / x, and 0 where x is 0 or its inverse overflows."""
    tiny = np.abs(x) < np.float32(1e-37)
    safe = np.where(tiny, np.float32(1), x)
    return np.asarray(np.where(tiny, np.float32(0), np.float32(1) / safe), np.float32)
