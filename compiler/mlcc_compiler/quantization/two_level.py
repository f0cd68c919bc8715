"""Codes and scales of two-level schemes (GGUF's K-quants): each group's scale, and its minimum if
the scheme has one, is found as for the affine family, rounded to an integer times the block's
float16, and the codes are rounded once more with what that gives.
"""

from __future__ import annotations

import numpy as np

from mlcc_compiler.quantization.one_level import halves, inverse, lines, round_to, search
from mlcc_compiler.quantization.quantized import Array, Floats, Quantized, group_minima
from mlcc_compiler.quantization.quantized import group_scales as scales_of
from mlcc_compiler.quantization.schemes import MINIMA, Scheme

_LEAST = np.float32(2.0**-24)
"""The smallest float16."""


def encode(weight: Floats, scheme: Scheme) -> Quantized:
    """Rows f32 [N, K] -> the same quantized."""
    n, k = weight.shape
    shape = (n, scheme.groups_of(k))
    groups = weight.reshape(-1, scheme.group_of(k))
    empty = np.zeros((n, k), np.uint8)
    if scheme.offset == MINIMA:
        scale, minimum = (part.reshape(shape) for part in lines(groups, scheme.levels, True))
        blocks, sub_scales = two_levels(scale, scheme, k)
        lows, sub_minima = two_levels(-minimum, scheme, k)
        q = Quantized(scheme, empty, blocks, None, -lows, sub_scales, sub_minima)
    else:
        zero = np.full(len(groups), scheme.middle, np.float32)
        low, high = groups.min(axis=1), groups.max(axis=1)
        widest = np.where(-low > high, low, high) / np.float32(-scheme.middle)
        scale = search(groups, widest, zero, scheme.levels).reshape(shape)
        blocks, sub_scales = two_levels(scale, scheme, k)
        q = Quantized(scheme, empty, blocks, sub_scales=sub_scales)
    return _with_codes(q, groups)


def two_levels(scales: Floats, scheme: Scheme, k: int) -> tuple[Array, Array]:
    """[N, G] -> a float16 per block [N, B] and integers i8 [N, G]; negative scales need a range
    that has both signs."""
    least, most = scheme.sub_range
    n, per_block = len(scales), scheme.block // scheme.group_of(k)
    count = scheme.blocks_of(k)
    padded = np.zeros((n, count * per_block), np.float32)
    padded[:, : scales.shape[1]] = scales
    blocks = padded.reshape(n, count, per_block)
    low, high = blocks.min(axis=2, initial=0), blocks.max(axis=2, initial=0)
    unit = high / np.float32(most)
    if least:  # the side with the larger magnitude gets the larger end, by the block's sign
        unit = np.where(-low > high, low, high) / np.float32(least)
    tiny = (unit != 0) & (np.abs(unit) < _LEAST)  # would be no float16: fewer integers instead
    half = halves(np.where(tiny, np.copysign(_LEAST, unit), unit))
    whole = np.rint(blocks * inverse(half.astype(np.float32).reshape(-1)).reshape(n, count, 1))
    whole = np.clip(whole, least, most).astype(np.int8)
    return half, np.ascontiguousarray(whole.reshape(n, count * per_block)[:, : scales.shape[1]])


def _with_codes(q: Quantized, groups: Floats) -> Quantized:
    """Codes of the scales as they are stored."""
    how = q.scheme
    scales, minima = scales_of(q).reshape(-1), group_minima(q)
    if minima is not None:
        codes = round_to(groups - minima.reshape(-1, 1), scales, 0, how.levels)
    else:
        middle = np.full(len(groups), how.middle, np.float32)
        codes = round_to(groups, scales, middle, how.levels) + np.float32(how.middle)
    q.codes[:] = codes.astype(np.uint8).reshape(q.shape)
    return q
