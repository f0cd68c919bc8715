"""Codes and scales of two-level schemes (GGUF's K-quants and this project's k and t schemes).

Each group's scale, and its minimum if the scheme has one, is found by `grid_search.py` and rounded
to an integer times the block's float16; the codes are then rounded once more with the stored
values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlcc_compiler.quantization import native_search
from mlcc_compiler.quantization.grid_search import fit_curve, fit_ranges, fit_symmetric, importances
from mlcc_compiler.quantization.one_level import halves, inverse
from mlcc_compiler.quantization.quantized import Array, Floats, Quantized, group_minima
from mlcc_compiler.quantization.quantized import group_scales as scales_of
from mlcc_compiler.quantization.schemes import MINIMA, Scheme

_LEAST = np.float32(2.0**-24)
"""The smallest positive float16."""


def encode(
    weight: Floats, scheme: Scheme, power: Floats | None = None, *, fast: bool = False
) -> Quantized:
    """Quantize rows f32 [N, K]. power: [K] mean squares of the inputs, if known.

    fast: use natively compiled kernels, which are bit-identical.
    """
    n, k = weight.shape
    shape, group = (n, scheme.groups_of(k)), scheme.group_of(k)
    groups = weight.reshape(-1, group)
    fast = fast and native_search.takes(*groups.shape)
    x = errors = weight  # kernels take groups as they lie, and know what errors weigh
    if not fast:
        x = np.ascontiguousarray(groups.T)
        given = None if power is None else np.tile(power.reshape(-1, group).T, (1, n))
        errors = importances(x, given)
    empty = np.zeros((n, k), np.uint8)
    if scheme.offset == MINIMA:
        levels = scheme.levels
        if fast:
            found = native_search.fit_ranges(groups, levels, power)
        else:
            found = fit_ranges(x, errors, levels)
        scale, minimum = (part.reshape(shape) for part in found)
        blocks, sub_scales = two_levels(scale, scheme, k)
        lows, sub_minima = two_levels(-minimum, scheme, k)
        q = Quantized(scheme, empty, blocks, None, -lows, sub_scales, sub_minima)
    else:
        scale = _one_scale(scheme, x, errors, groups if fast else None, power).reshape(shape)
        blocks, sub_scales = two_levels(scale, scheme, k)
        q = Quantized(scheme, empty, blocks, sub_scales=sub_scales)
    return _with_codes(q, x, groups if fast else None)


def _one_scale(
    scheme: Scheme, x: Floats, errors: Floats, groups: Floats | None, power: Floats | None
) -> Floats:
    """Scales of a scheme without minima, [M]; by native kernels, if groups are given."""
    if scheme.curve:
        if groups is not None:
            return native_search.fit_curve(groups, scheme, power)
        return fit_curve(x, errors, scheme)
    if groups is not None:
        return native_search.fit_symmetric(groups, scheme.middle, power)
    return fit_symmetric(x, errors, scheme.middle)


def two_levels(scales: Floats, scheme: Scheme, k: int) -> tuple[Array, Array]:
    """[N, G] -> a float16 per block [N, B] and integers i8 [N, G]; negative scales need a signed
    range."""
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


def _with_codes(q: Quantized, x: Floats, groups: Floats | None) -> Quantized:
    """Codes of weights [group, groups of all rows], for the scales as they are stored. By native
    kernels, if the same weights are given as rows."""
    scales, minima = scales_of(q).reshape(-1), group_minima(q)
    if q.scheme.table:
        return _with_places(q, scales, x, groups)
    low = scales * np.float32(-q.scheme.middle) if minima is None else minima.reshape(-1)
    if groups is not None:
        found = native_search.codes(groups, low, inverse(scales), 0, q.scheme.levels)
        return replace(q, codes=found.reshape(q.shape))
    codes = x - low
    codes *= inverse(scales)
    np.rint(codes, out=codes)
    np.clip(codes, 0, q.scheme.levels, out=codes)
    q.codes[:] = codes.astype(np.uint8).T.reshape(q.shape)
    return q


def _with_places(q: Quantized, scales: Floats, x: Floats, groups: Floats | None) -> Quantized:
    """Codes of a rising table, with the arguments of `_with_codes`."""
    table = np.asarray(q.scheme.table, np.float32)
    between = (table[1:] + table[:-1]) / np.float32(2)
    if groups is not None:
        found = native_search.places(groups, inverse(scales), between)
        return replace(q, codes=found.reshape(q.shape))
    places = np.searchsorted(between, x * inverse(scales))
    q.codes[:] = places.astype(np.uint8).T.reshape(q.shape)
    return q
