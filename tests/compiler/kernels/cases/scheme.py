"""The schemes that kernels are tested with: every family, offset, number of planes and scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc_compiler.quantization import Quantized, Scheme

FLOATS = ("f32", "f16", "bf16")
AFFINE = (
    "int4_g32", "int4a_g16", "int4a_g128", "int8_g32", "int8a_g64", "int8_row", "int4m_g32",
    "int5_g32", "int5m_g32", "int3_g64", "int6_g32", "int7a_g16", "int2_g64",
)  # fmt: skip
TWO_LEVEL = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
TABLES = ("iq4_nl", "iq4_xs", "mxfp4", "t3_g32", "t4_g32", "t5_g32")
KERNELS = (*FLOATS, *AFFINE, *TWO_LEVEL, *TABLES)


def extreme(how: Scheme, n: int, k: int) -> Quantized:
    """A matrix of the largest and the smallest of everything, in rows of one kind: codes, integers
    of scales, minima, zero points."""
    rng = np.random.default_rng(n * k)
    groups, blocks = how.groups_of(k), how.blocks_of(k)
    codes = np.zeros((n, k), np.uint8)
    codes[0::4], codes[2::4, ::2] = how.levels, how.levels
    codes[3::4] = rng.integers(0, how.levels + 1, codes[3::4].shape)
    parts: dict[str, Any] = {"scales": _ends((n, blocks), 0.01, -0.02).astype(how.scale_dtype)}
    if how.scale_dtype == "uint8":
        parts["scales"] = _ends((n, blocks), 120, 130).astype(np.uint8)
    if how.offset == "zeros":
        parts["zeros"] = _ends((n, groups), 0, how.levels).astype(np.uint8)
    if how.offset == "minima":
        parts["minima"] = _ends((n, blocks), -0.3, 0.2).astype(np.float16)
    if how.block:
        low, high = how.sub_range
        parts["sub_scales"] = _ends((n, groups), low, high).astype(np.int8)
        if how.offset == "minima":
            parts["sub_minima"] = _ends((n, groups), high, 0).astype(np.int8)
    return Quantized(how, codes, **parts)


def _ends(shape: tuple[int, int], even: float, odd: float) -> np.ndarray:
    """Neighbours of a row take turns, so that a wrong group or block shows."""
    return np.where((np.arange(shape[1]) + np.arange(shape[0])[:, None]) % 2, odd, even)
