"""Turn f32 matrices into codes, scales and zero points, and back, in numpy.

Round-to-nearest with a small search: each group tries a few clipping ranges, keeps the one whose
best scale leaves the smallest squared error, and rounds once more with that scale as it is stored
(f16). For codes q the best scale is sum(w q) / sum(q q), and then the error is
sum(w w) - sum(w q)**2 / sum(q q), so that candidates compare without forming the residual (the
closed form behind llama.cpp's and HQQ's searches). Deterministic: work is split by rows only.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.quantization.schemes import Scheme

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Codes = npt.NDArray[np.uint8]

_CHUNK = 1 << 16  # weights per step: their temporaries stay in a core's L2 cache
_SHRINK = (1.1, 1.05, 1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
_HALF_MAX = 65504.0


@dataclass(frozen=True)
class Quantized:
    """A matrix [N, K] in logical order; weight = (code - zero) * scale of its group."""

    scheme: Scheme
    codes: Codes
    """[N, K], 0 .. 2**bits - 1."""
    scales: Halves
    """[N, K / group]; may be negative."""
    zeros: Codes | None
    """[N, K / group]; None = 2**(bits - 1) everywhere."""


def quantize(weight: npt.NDArray[Any], scheme: Scheme) -> Quantized:
    """Quantize f32 [N, K]. Raises UnsupportedError (group does not fit), CheckpointError (NaN)."""
    if scheme.is_float:
        raise UnsupportedError(f"scheme '{scheme.name}' is a float format; store the matrix as it")
    n, k = weight.shape
    group = scheme.group_of(k)
    codes = np.empty((n, k), np.uint8)
    scales = np.empty((n, k // group), np.float16)
    zeros = None if scheme.symmetric else np.empty((n, k // group), np.uint8)

    def run(rows: slice) -> None:
        part = np.ascontiguousarray(weight[rows], np.float32).reshape(-1, group)
        if not np.isfinite(part).all():
            raise CheckpointError("a weight is NaN or infinite; the checkpoint is damaged")
        q, s, z = _encode(part, scheme)
        codes[rows] = q.reshape(-1, k)
        scales[rows] = s.reshape(-1, k // group)
        if zeros is not None:
            zeros[rows] = z.reshape(-1, k // group)

    step = max(1, _CHUNK // k)
    with ThreadPoolExecutor(_cores()) as pool:
        list(pool.map(run, (slice(i, i + step) for i in range(0, n, step))))
    return Quantized(scheme, codes, scales, zeros)


def _cores() -> int:
    """Those this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def dequantize(quantized: Quantized) -> Floats:
    """f32 [N, K], exactly what the kernels compute with."""
    n, k = quantized.codes.shape
    count = quantized.scales.shape[1]
    zeros: Any = quantized.scheme.middle
    if quantized.zeros is not None:
        zeros = quantized.zeros.astype(np.float32)[:, :, None]
    values = quantized.codes.reshape(n, count, k // count).astype(np.float32)
    values -= zeros
    values *= quantized.scales.astype(np.float32)[:, :, None]
    return values.reshape(n, k)


def _encode(groups: Floats, scheme: Scheme) -> tuple[Codes, Halves, Codes]:
    """Groups f32 [M, g] -> codes [M, g], scales [M], zeros [M]."""
    scale, zero = _range(groups, scheme)
    # One candidate is enough at 8 bits: clipping there costs more than finer steps gain.
    best = scale if scheme.bits == 8 else _search(groups, scale, zero, scheme.levels)
    half = np.clip(best, -_HALF_MAX, _HALF_MAX).astype(np.float16)
    signed = _round(groups, half.astype(np.float32), zero, scheme.levels)
    return (signed + zero[:, None]).astype(np.uint8), half, zero.astype(np.uint8)


def _range(groups: Floats, scheme: Scheme) -> tuple[Floats, Floats]:
    """The scale that covers each group, and its zero point (as f32)."""
    low, high = groups.min(axis=1), groups.max(axis=1)
    if not scheme.symmetric:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = (high - low) / np.float32(scheme.levels)
        return scale, np.rint(-low * _inverse(scale))
    zero = np.full(len(groups), scheme.middle, np.float32)
    if scheme.bits == 8:
        return np.maximum(-low, high) / np.float32(127), zero
    # The side with the larger magnitude gets the extra code -8, by the sign of the scale.
    return np.where(-low > high, low, high) / np.float32(-scheme.middle), zero


def _search(groups: Floats, scale: Floats, zero: Floats, levels: int) -> Floats:
    """The least-squares scale of the best clipping range, [M]."""
    best_gain = np.full(len(groups), -1, np.float32)
    best = scale
    for shrink in _SHRINK:
        signed = _round(groups, scale * np.float32(shrink), zero, levels)
        dot = np.einsum("mg,mg->m", groups, signed)
        norm = np.einsum("mg,mg->m", signed, signed)
        fitted = dot * _inverse(norm)
        better = dot * fitted > best_gain
        best = np.where(better, fitted, best)
        best_gain = np.where(better, dot * fitted, best_gain)
    return best


def _round(groups: Floats, scale: Floats, zero: Floats, levels: int) -> Floats:
    """Codes less the zero point, as f32 [M, g]."""
    signed = groups * _inverse(scale)[:, None]
    np.rint(signed, out=signed)
    low = -zero[:, None]
    np.clip(signed, low, low + np.float32(levels), out=signed)
    return signed


def _inverse(x: Floats) -> Floats:
    """1 / x, and 0 where x is 0 or its inverse overflows."""
    tiny = np.abs(x) < np.float32(1e-37)
    safe = np.where(tiny, np.float32(1), x)
    return np.asarray(np.where(tiny, np.float32(0), np.float32(1) / safe), np.float32)
