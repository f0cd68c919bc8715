"""NVFP4: 4-bit floats, two a byte, the first in the low half, with an 8-bit float (e4m3) for each
16 and a float32 for all of a matrix. As compressed-tensors and NVIDIA's Model Optimizer have it.
"""

from __future__ import annotations

import numpy as np

from mlcc_compiler.checkpoint.formats.packed import PackedMatrix, Parts, unpack
from mlcc_compiler.quantization.quantized import Quantized
from mlcc_compiler.quantization.schemes import NVFP4


def matrix(
    parts: Parts, name: str, scale: str, factor: str, *, divides: bool = False
) -> PackedMatrix:
    """The matrix of `name` u8 [N, K / 2], `scale` e4m3 [N, K / 16] and `factor` f32 [1] or [].

    divides: scales are divided by the factor; kept is its inverse, rounded to float32.
    """
    n, half = parts.shape(name, ("uint8",))
    if parts.shape(scale, ("float8_e4m3fn",)) != (n, half // 8) or half % 8:
        raise parts.refuse(name, "does not fit its scales, as NVFP4")
    if parts.shape(factor, ("float32",), 0) not in ((), (1,)):
        raise parts.refuse(factor, "is no single number")

    def load() -> Quantized:
        given = parts.load(factor).astype(np.float32).reshape(1, 1)
        with np.errstate(divide="ignore"):
            one = np.float32(1) / given if divides else given
        return Quantized(
            NVFP4,
            codes=unpack(parts.load(name), 4, 2 * half),
            scales=np.repeat(one, n, axis=0),
            sub_scales=parts.load(scale, as_codes=True).view(np.int8),
        )

    return PackedMatrix((n, 2 * half), (name, scale, factor), load, NVFP4.name)
