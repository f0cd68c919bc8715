"""Unpacks GGUF blocks to codes and scales, values unchanged: bit-identical to `blocks.to_float`.

A function per format takes blocks u8 [M, bytes of a block] and returns, per block, codes in the
order of the weights and the numbers of its groups, as `quantization.quantized` names them. Layouts
are ggml's (ggml-common.h).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.checkpoint.gguf.formats import BlockFormat
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import scheme

Bytes = npt.NDArray[np.uint8]
Parts = dict[str, npt.NDArray[Any]]
"""For M blocks: codes [M, weights], other parts [M, numbers of a block]."""

SCHEMES = {
    "Q4_0": "int4_g32",
    "Q4_1": "int4m_g32",
    "Q5_0": "int5_g32",
    "Q5_1": "int5m_g32",
    "Q8_0": "int8_g32",
    "Q2_K": "q2_k",
    "Q3_K": "q3_k",
    "Q4_K": "q4_k",
    "Q5_K": "q5_k",
    "Q6_K": "q6_k",
    "IQ4_NL": "iq4_nl",
    "IQ4_XS": "iq4_xs",
    "MXFP4": "mxfp4",
    "NVFP4": "nvfp4",
}
"""The scheme of a format, by the format's name."""
NEAREST = {
    "F32": "f32",
    "F64": "f32",
    "F16": "f16",
    "BF16": "bf16",
    **dict.fromkeys(("IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0"), "int4m_g32"),
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), "int4m_g32"),
}
"""Schemes for formats without one, chosen to round their values least (the grids of IQ2 and IQ3 are
six and sixteen values at nearly even distances).
"""


def quantized(blocks: Bytes, form: BlockFormat) -> Quantized:
    """Rows of blocks [rows, bytes of a row] as a matrix. `form` is a key of SCHEMES."""
    rows = len(blocks)
    parts = _UNPACK[form.name](blocks.reshape(-1, form.size))
    joined = {name: np.ascontiguousarray(part.reshape(rows, -1)) for name, part in parts.items()}
    if form.name == "NVFP4":  # the factor of a tensor is a tensor of its own
        joined["scales"] = np.ones((rows, 1), np.float32)
    return Quantized(scheme(SCHEMES[form.name]), **joined)


def _half(blocks: Bytes, first: int) -> npt.NDArray[np.float16]:
    """The float16 at a byte of each block, [M, 1]."""
    return np.ascontiguousarray(blocks[:, first : first + 2]).view("<f2").astype(np.float16)


def _nibbles(data: Bytes) -> Bytes:
    """[M, n] bytes -> [M, 2 n]: the low halves, then the high ones."""
    return np.concatenate([data & 15, data >> 4], axis=1)


def _nibbles_by(data: Bytes, width: int) -> Bytes:
    """`_nibbles` for each run of `width` bytes."""
    return _nibbles(data.reshape(-1, width)).reshape(len(data), -1)


def _pairs(data: Bytes, shifts: tuple[int, ...], width: int, mask: int) -> Bytes:
    """For each run of `width` bytes, those bytes shifted by each of `shifts`, and masked."""
    runs = data.reshape(len(data), -1, 1, width)
    by = np.asarray(shifts, np.uint8).reshape(1, 1, -1, 1)
    return ((runs >> by) & np.uint8(mask)).reshape(len(data), -1)


def _q4_0(b: Bytes) -> Parts:
    return {"codes": _nibbles(b[:, 2:]), "scales": _half(b, 0)}


def _q4_1(b: Bytes) -> Parts:
    return {"codes": _nibbles(b[:, 4:]), "scales": _half(b, 0), "minima": _half(b, 2)}


def _fifth_bits(data: Bytes) -> Bytes:
    """32 bits of four bytes, each as 16: the fifth bit of a code."""
    return np.unpackbits(data, axis=1, bitorder="little") << np.uint8(4)


def _q5_0(b: Bytes) -> Parts:
    return {"codes": _nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6]), "scales": _half(b, 0)}


def _q5_1(b: Bytes) -> Parts:
    codes = _nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8])
    return {"codes": codes, "scales": _half(b, 0), "minima": _half(b, 2)}


def _q8_0(b: Bytes) -> Parts:
    return {"codes": b[:, 2:] ^ np.uint8(128), "scales": _half(b, 0)}


def _q2_k(b: Bytes) -> Parts:
    numbers, codes = b[:, :16], b[:, 16:80]
    return {
        "codes": _pairs(codes, (0, 2, 4, 6), 32, 3),
        "scales": _half(b, 80),
        "minima": -_half(b, 82),
        "sub_scales": (numbers & 15).astype(np.int8),
        "sub_minima": (numbers >> 4).astype(np.int8),
    }


def _q3_k(b: Bytes) -> Parts:
    high, low, packed = b[:, :32], b[:, 32:96], b[:, 96:108]
    third = _pairs(high, tuple(range(8)), 32, 1) << np.uint8(2)
    small = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    upper = _pairs(packed[:, 8:], (0, 2, 4, 6), 4, 3)
    return {
        "codes": _pairs(low, (0, 2, 4, 6), 32, 3) | third,
        "scales": _half(b, 108),
        "sub_scales": (small | (upper << 4)).astype(np.int8) - np.int8(32),
    }


def _six_bits(packed: Bytes) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    """Q4_K's and Q5_K's 12 bytes: eight scales and eight minima of six bits each."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = [first & 63, (third & 15) | ((first >> 6) << 4)]
    minima = [second & 63, (third >> 4) | ((second >> 6) << 4)]
    joined = (np.concatenate(part, axis=1).astype(np.int8) for part in (scales, minima))
    return next(joined), next(joined)


def _k_with_minima(b: Bytes, codes: Bytes) -> Parts:
    sub_scales, sub_minima = _six_bits(b[:, 4:16])
    return {
        "codes": codes,
        "scales": _half(b, 0),
        "minima": -_half(b, 2),
        "sub_scales": sub_scales,
        "sub_minima": sub_minima,
    }


def _q4_k(b: Bytes) -> Parts:
    return _k_with_minima(b, _nibbles_by(b[:, 16:], 32))


def _q5_k(b: Bytes) -> Parts:
    fifth = _pairs(b[:, 16:48], tuple(range(8)), 32, 1) << np.uint8(4)
    return _k_with_minima(b, _nibbles_by(b[:, 48:], 32) | fifth)


def _q6_k(b: Bytes) -> Parts:
    low = _nibbles_by(b[:, :128], 64)
    high = _pairs(b[:, 128:192], (0, 2, 4, 6), 32, 3) << np.uint8(4)
    scales = np.ascontiguousarray(b[:, 192:208]).view(np.int8)
    return {"codes": low | high, "scales": _half(b, 208), "sub_scales": scales}


def _iq4_nl(b: Bytes) -> Parts:
    return {"codes": _nibbles(b[:, 2:]), "scales": _half(b, 0)}


def _iq4_xs(b: Bytes) -> Parts:
    high = np.ascontiguousarray(b[:, 2:4]).view("<u2").astype(np.uint16)
    upper = (high >> np.arange(0, 16, 2, dtype=np.uint16)) & np.uint16(3)
    lower = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], axis=2).reshape(len(b), 8)
    return {
        "codes": _nibbles_by(b[:, 8:], 16),
        "scales": _half(b, 0),
        "sub_scales": (lower | (upper << 4)).astype(np.int8) - np.int8(32),
    }


def _mxfp4(b: Bytes) -> Parts:
    return {"codes": _nibbles(b[:, 1:]), "scales": b[:, :1]}


def _nvfp4(b: Bytes) -> Parts:
    scales = b[:, :4] & np.uint8(127)
    scales = np.where(scales == 127, np.uint8(0), scales)  # as ggml reads a NaN
    return {"codes": _nibbles_by(b[:, 4:], 8), "sub_scales": scales.view(np.int8)}


_UNPACK: Mapping[str, Callable[[Bytes], Parts]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0,
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
}  # fmt: skip
