"""Codes and scales of table schemes (MXFP4, NF4, IQ4_NL): the nearest table value, with a searched
scale.

A few scales are tried around the one that covers the group; the best is fitted to its codes by
least squares. Powers of two (MXFP4) are not fitted: the standard's choice and its double are tried.
"""

from __future__ import annotations

import numpy as np

from mlcc_compiler.quantization.k_quant import two_levels
from mlcc_compiler.quantization.one_level import halves, inverse
from mlcc_compiler.quantization.quantized import Array, Floats, Quantized, group_scales
from mlcc_compiler.quantization.schemes import E4M3_MOST, Scheme, e4m3

_STRETCH = (1.0, 0.95, 0.9, 0.85)


def encode(weight: Floats, scheme: Scheme) -> Quantized:
    """Quantize rows f32 [N, K]."""
    n, k = weight.shape
    groups = weight.reshape(-1, scheme.group_of(k))
    scale = _scales(groups, scheme).reshape(n, scheme.groups_of(k))
    codes = np.zeros((n, k), np.uint8)
    if scheme.is_nvfp4:
        whole = np.abs(scale).max(axis=1, keepdims=True) / np.float32(E4M3_MOST)
        eights = _nearest(scale, whole[:, 0], e4m3(0)).view(np.int8)
        q = Quantized(scheme, codes, whole, sub_scales=eights)
    elif scheme.block:
        blocks, subs = two_levels(scale, scheme, k)
        q = Quantized(scheme, codes, blocks, sub_scales=subs)
    elif scheme.scale_dtype == "uint8":
        q = Quantized(scheme, codes, _exponents(scale))
    else:
        q = Quantized(scheme, codes, halves(scale) if scheme.scale_dtype == "float16" else scale)
    codes[:] = _nearest(groups, group_scales(q).reshape(-1), scheme).reshape(n, k)
    return q


def _scales(groups: Floats, scheme: Scheme) -> Floats:
    """The best of a few scales of each group, [M]."""
    table = np.asarray(scheme.table, np.float32)
    low, high = groups.min(axis=1, initial=0), groups.max(axis=1, initial=0)
    least, most = np.nanmin(table), np.nanmax(table)
    end = least if -least >= most else most
    widest = np.where(-low > high, low, high) / end
    if scheme.scale_dtype == "uint8":
        top = np.ldexp(
            np.float32(1), np.frexp(np.abs(widest))[1] - 1
        )  # within [widest / 2, widest]
        candidates = [top, 2 * top]
    elif scheme.scale_dtype == "float32":
        return np.maximum(-low, high) / np.abs(end)
    else:
        candidates = [sign * s * widest for s in map(np.float32, _STRETCH) for sign in (1, -1)]
    best = np.full(len(groups), np.inf, np.float32)
    found = np.zeros(len(groups), np.float32)
    for scale in candidates:
        values = table[_nearest(groups, scale, scheme)]
        dot = np.einsum("mg,mg->m", groups, values)
        norm = np.einsum("mg,mg->m", values, values)
        fitted = scale if scheme.scale_dtype == "uint8" else dot * inverse(norm)
        error = fitted * (fitted * norm - 2 * dot)
        better = error < best
        best, found = np.where(better, error, best), np.where(better, fitted, found)
    return found.astype(np.float32)


def _nearest(groups: Floats, scale: Floats, scheme: Scheme) -> Array:
    """The code of the nearest table value for each weight, u8 [M, g]."""
    table = np.asarray(scheme.table, np.float32)
    order = np.argsort(table, kind="stable")[: np.count_nonzero(~np.isnan(table))]
    values = table[order]
    between = (values[1:] + values[:-1]) / 2
    place = np.searchsorted(between, groups * inverse(scale)[:, None])
    return order.astype(np.uint8)[place]


def _exponents(scales: Floats) -> Array:
    """Powers of two as bytes, 2**(byte - 127)."""
    exponent = np.frexp(np.abs(scales))[1] - 1 + 127
    return np.where(scales == 0, 0, np.clip(exponent, 0, 254)).astype(np.uint8)
